"""Two classes of devices, "CPUs" and "GPUs": the device is the experimental unit, not the run.

A claim about a class of devices is tested over devices: 1,000 runs on one GPU say nothing about GPUs. Each device
counts once, with the mean of its runs. If the classes do not differ, every split of the devices into classes of these
sizes is equally likely, so with ranks r_i of the device means (ties share their mean rank)

    U = Σ_{i in b} r_i − k_b (k_b + 1)/2,   p = share of all splits with |U − k_a k_b/2| at least the observed one

(Wilcoxon 1945, Mann and Whitney 1947; exact permutation, also with ties). The smallest possible p is about 2 / C(k_a +
k_b, k_b): 4 CPUs and 8 GPUs give 495 splits and p ≥ 0.004 however many runs are made, 3 and 3 give 20 and p ≥ 0.1:
never 5 %. *Different* needs this test and the interval of the mixed model (`mixed_model`), *equivalent* the 1 − 2·alpha
interval of the mixed model inside the margin.

Not covered: one device per class (nothing can be said about the classes), devices shared by both classes (pair those).
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from trivet.stats.mixed import Devices, MixedModel, check_devices, mixed_model
from trivet.stats.result import Result
from trivet.stats.sentences import Label, Reason
from trivet.stats.unpaired import DRAWS, SPLITS_LIMIT, splits
from trivet.stats.values import FloatArray, check_alpha, check_margin
from trivet.stats.wording import NumberStyle, p_text, percent, plain_number

__all__ = ["DeviceVerdict", "decide_devices", "rank_p"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceVerdict(Result):
    """The verdict on two classes of devices."""

    label: Label
    """ "different", "equivalent" or "undecided"."""
    sentence: str
    """The verdict in plain English."""
    reason: Reason
    """When undecided: why; otherwise empty."""
    sure_difference: bool
    """Whether a difference between the classes is established (may hold beside "equivalent")."""
    devices: tuple[int, int]
    """Devices of each class: the n of this comparison."""
    runs: tuple[int, int]
    """Runs of each class."""
    p: float
    """Exact rank p over devices; 1 when a class has no device."""
    p_method: str
    """How it was counted."""
    smallest_p: float
    """The smallest p that these numbers of devices can give."""
    superiority: float
    """Share of pairs of devices, one of each class, in which b has the larger mean (ties half)."""
    model: MixedModel | None
    """The mixed model; `None` with fewer than 3 devices or an empty class."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def rank_p(a: FloatArray, b: FloatArray, *, seed: int = 0) -> tuple[float, str]:
    """Two-sided exact Mann–Whitney p, with ties, and how it was counted.

    Args:
        a: Values of the first group, at least 1.
        b: Values of the second group, at least 1.
        seed: Seed of the random splits, used only above 200,000 splits.

    Examples:
        >>> import numpy as np
        >>> p, method = rank_p(np.arange(4.0), np.arange(10.0, 18.0))
        >>> round(p * 495), method
        (2, 'exact rank test')
    """
    values = np.concatenate([a, b])
    order = np.unique(values, return_inverse=True)[1]
    counts = np.bincount(order)
    # twice the mean rank is a whole number, so that ties compare exactly
    double = (2 * np.cumsum(counts) - counts + 1)[order].astype(np.float64)
    n, size = values.size, b.size
    center = size * (n + 1.0)
    observed = abs(float(double[a.size :].sum()) - center)
    if math.comb(n, size) <= SPLITS_LIMIT:
        reach = np.concatenate([np.abs(mask @ double - center) for mask in splits(n, size)])
        return int(np.count_nonzero(reach >= observed)) / reach.size, "exact rank test"
    start = np.zeros((1, n))
    start[0, a.size :] = 1.0
    drawn = np.random.default_rng([seed, n, size]).permuted(np.repeat(start, DRAWS, axis=0), axis=1)
    hits = 1 + int(np.count_nonzero(np.abs(drawn @ double - center) >= observed))
    return hits / (DRAWS + 1), f"rank test with {DRAWS:,} random splits"


def decide_devices(
    a: Devices,
    b: Devices,
    margin: float = 0.0,
    alpha: float = 0.05,
    names: tuple[str, str] = ("a", "b"),
    metric: str = "",
    *,
    seed: int = 0,
) -> DeviceVerdict:
    """Decide whether two classes of devices are different, equivalent or undecided.

    Args:
        a: Device → outcomes of its runs, for the devices of the first class.
        b: The same for the second class.
        margin: Largest difference between classes that does not matter; 0 means "none given".
        alpha: Error rate, in (0, 0.5).
        names: Names of the classes.
        metric: Name of the metric.
        seed: Seed of the random splits, used only above 200,000 splits.

    Raises:
        TypeError: A class is no mapping of device → numbers.
        ValueError: A value is not finite, a device has no run or is in both classes, or an argument is out of range.

    Examples:
        >>> cpus = {f"cpu{k}": [1.0 + k / 10, 1.1 + k / 10] for k in range(4)}
        >>> gpus = {f"gpu{k}": [2.0 + k / 10, 2.1 + k / 10, 2.05 + k / 10] for k in range(8)}
        >>> verdict = decide_devices(cpus, gpus, names=("CPUs", "GPUs"))
        >>> verdict.label, verdict.devices, round(verdict.smallest_p, 4)
        ('different', (4, 8), 0.004)
    """
    check_alpha(alpha)
    check_margin(margin, zero=True)
    first, second = check_devices(a, b, names)
    k_a, k_b = len(first), len(second)
    runs = (sum(x.size for x in first), sum(x.size for x in second))
    floor = _smallest(k_a, k_b)
    means_a, means_b = (np.array([math.fsum(x.tolist()) / x.size for x in group]) for group in (first, second))
    p, method = rank_p(means_a, means_b, seed=seed) if k_a and k_b else (1.0, "no test")
    model = mixed_model(a, b, margin, alpha=alpha, names=names) if k_a and k_b and k_a + k_b >= 3 else None
    enough = model is not None and floor <= alpha
    sure = enough and model is not None and p <= alpha and model.region.excludes_zero
    within = enough and model is not None and model.region.within_margin
    label: Label = "undecided"
    if within and model is not None and (not sure or model.region.label == "equivalent"):
        label = "equivalent"
    elif sure:
        label = "different"
    reason: Reason = ""
    if label == "undecided":
        excludes = model is not None and model.region.excludes_zero
        reason = (
            "too few pairs" if not enough else "tests disagree" if excludes != (p <= alpha)
            else "interval too wide" if margin > 0.0 else "no margin"
        )  # fmt: skip
    wins = float(np.mean((means_b[:, None] > means_a) + 0.5 * (means_b[:, None] == means_a))) if k_a and k_b else 0.5
    made = DeviceVerdict(
        label=label, sentence="", reason=reason, sure_difference=sure, devices=(k_a, k_b), runs=runs, p=p,
        p_method=method, smallest_p=floor, superiority=wins, model=model,
    )  # fmt: skip
    return _with_sentence(made, names, metric, alpha, margin)


def _smallest(k_a: int, k_b: int) -> float:
    return min(1.0, 2.0 / math.comb(k_a + k_b, k_b))


def _with_sentence(
    made: DeviceVerdict, names: tuple[str, str], metric: str, alpha: float, margin: float
) -> DeviceVerdict:
    on_metric = f" on {metric}" if metric else ""
    units = f"{made.devices[0]} and {made.devices[1]} devices with {sum(made.runs)} runs"
    model, limit = made.model, plain_number(margin)
    if model is None:
        text = (
            f"Undecided whether {names[1]} and {names[0]} differ{on_metric}: {units}. A claim about classes needs at "
            "least 3 devices in all; more runs on the same devices do not replace them."
        )
        return dataclasses.replace(made, sentence=text)
    write = NumberStyle((model.high - model.low) / 2, model.effect)
    tested = f"{made.p_method} over devices {p_text(made.p)}"
    effect = (
        f"difference {names[1]} − {names[0]} = {write(model.effect)} ({percent(1 - alpha)} interval "
        f"{write(model.low)} to {write(model.high)} of a random-intercept model, {units}, {tested})"
    )
    if made.label == "different":
        way = "higher" if model.effect > 0 else "lower"
        return dataclasses.replace(made, sentence=f"{names[1]} are {way} than {names[0]}{on_metric}: {effect}.")
    if made.label == "equivalent":
        text = f"{names[1]} and {names[0]} are equivalent{on_metric} within ±{limit}: {effect}."
        return dataclasses.replace(made, sentence=text)
    why = {
        "too few pairs": (
            f"With {made.devices[0]} and {made.devices[1]} devices p cannot go below {made.smallest_p:.2g}, however "
            "many runs are made."
        ),
        "tests disagree": "The rank test over devices and the interval disagree.",
        "no margin": "Without a margin, equivalence cannot be shown.",
        "interval too wide": f"Equivalence within ±{limit} is not shown (TOST {p_text(model.region.p_equivalent)}).",
    }
    text = f"Undecided whether {names[1]} and {names[0]} differ{on_metric}: {effect}. {why[made.reason]}"
    return dataclasses.replace(made, sentence=text)
