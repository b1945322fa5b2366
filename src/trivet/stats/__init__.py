"""Is a difference between training runs real? Estimates, comparisons, equivalence and verdicts (numpy and scipy only).

Importing this package loads numpy and nothing heavier; scipy is loaded by the first computation. The names are bound
eagerly, because some functions share their name with their module (`compare`, `equivalence`, `estimate`) and a lazily
loaded submodule would shadow them.
"""

from trivet.stats.agreement import AgreementDifference, RankAgreement, agreement_difference, rank_agreement
from trivet.stats.compare import Comparison, compare
from trivet.stats.components import Component, VarianceComponents, variance_components
from trivet.stats.correlation import RankCorrelation, rank_correlation
from trivet.stats.critical import CriticalPeriod, critical_period
from trivet.stats.devices import DeviceVerdict, decide_devices
from trivet.stats.disagreement import Churn, ClassSpread, churn, class_spread
from trivet.stats.equivalence import Equivalence, equivalence
from trivet.stats.estimate import Estimate, estimate
from trivet.stats.family import ArmPair, decide_family, decide_pairs
from trivet.stats.intersection import AllEquivalent, all_equivalent
from trivet.stats.look_plan import LookPlan, plan_looks
from trivet.stats.looks import Look, decide_by_looks, look
from trivet.stats.margins import Region, region, region_of
from trivet.stats.mixed import MixedModel, mixed_model
from trivet.stats.multiplicity import holm
from trivet.stats.null_arm import AgainstNull, NullArm, against_null, null_arm
from trivet.stats.power import power_different, power_equivalent, seeds_needed, smallest_detectable
from trivet.stats.signflip import min_pairs, sign_flip_p, smallest_p
from trivet.stats.spread import AccuracySpread, PilotPlan, accuracy_spread, seeds_from_pilot
from trivet.stats.unpaired import UnpairedVerdict, decide_unpaired, permutation_p
from trivet.stats.verdict import Verdict, decide

__all__ = [
    "AccuracySpread",
    "AgainstNull",
    "AgreementDifference",
    "AllEquivalent",
    "ArmPair",
    "Churn",
    "ClassSpread",
    "Comparison",
    "Component",
    "CriticalPeriod",
    "DeviceVerdict",
    "Equivalence",
    "Estimate",
    "Look",
    "LookPlan",
    "MixedModel",
    "NullArm",
    "PilotPlan",
    "RankAgreement",
    "RankCorrelation",
    "Region",
    "UnpairedVerdict",
    "VarianceComponents",
    "Verdict",
    "accuracy_spread",
    "against_null",
    "agreement_difference",
    "all_equivalent",
    "churn",
    "class_spread",
    "compare",
    "critical_period",
    "decide",
    "decide_by_looks",
    "decide_devices",
    "decide_family",
    "decide_pairs",
    "decide_unpaired",
    "equivalence",
    "estimate",
    "holm",
    "look",
    "min_pairs",
    "mixed_model",
    "null_arm",
    "permutation_p",
    "plan_looks",
    "power_different",
    "power_equivalent",
    "rank_agreement",
    "rank_correlation",
    "region",
    "region_of",
    "seeds_from_pilot",
    "seeds_needed",
    "sign_flip_p",
    "smallest_detectable",
    "smallest_p",
    "variance_components",
]
