"""Which precision schedule to take: from what you aim at, what you train and what you can spend. Loads no torch.

Rules and where each comes from:

| question | rule | source |
|---|---|---|
| which group | aim cost → small, balance → medium, quality → large | arXiv 2403.02243 (its advice) |
| large-scale task | never the small group | arXiv 2403.02243: aggressive schedules can hurt large-scale tasks |
| which of a group | from scratch: the one with the smallest share of the first tenth at q_min; fine-tuning: the repeated one that was studied most | arXiv 2403.02243: low precision early in learning does lasting damage |
| q_min | 3 CNN and graph network, 4 MobileNet and ImageNet-sized, 5 LSTM, transformer, detection | settings of arXiv 2101.09868 and of the code of 2403.02243 |
| num_cycles | 8 from scratch, 2 for fine-tuning, fewer when a cycle would be shorter than 10 steps | the same code |
| grad_bits | constant, q_max | the same code |

A finished study of your own goes before all of them. Seconds are never derived from BitOPs: simulated precision saves
none, and what a step takes has to be measured.

Not covered: choosing the number of steps by quality; tasks that none of the sources looked at.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trivet.core.config import build
from trivet.precision.base import Schedule
from trivet.precision.catalog import GROUPS, TEN_SCHEDULES
from trivet.precision.checks import check_bits, check_choice
from trivet.precision.config import PrecisionConfig
from trivet.precision.evidence import AIMS, StudyArm, choose
from trivet.precision.schedules import PrecisionSchedule

DOMAINS: Mapping[str, tuple[int, str]] = {
    "vision": (3, "convolutional networks of CIFAR type"),
    "mobile": (4, "MobileNet-type networks"),
    "imagenet": (4, "ImageNet-sized image classification"),
    "graph": (3, "graph networks"),
    "language": (5, "LSTMs and transformers"),
    "detection": (5, "object detectors"),
}
"""Domain → q_min of the published experiments, and what they trained."""

STUDIED_MOST = {"small": "RR", "medium": "CR", "large": "ER"}
_GROUP_OF_AIM = dict(zip(AIMS, GROUPS, strict=True))
_WORDS = {
    "mobile": ("mobilenet", "shufflenet", "efficientnet", "mnasnet"),
    "detection": ("retinanet", "rcnn", "ssd", "fcos", "detr", "yolo"),
    "language": ("lstm", "gru", "bert", "gpt", "llama", "transformer", "t5"),
    "graph": ("gcn", "gat", "sage", "gin"),
    "imagenet": ("resnet18", "resnet34", "resnet50", "resnet101", "convnext", "vit_", "vgg", "densenet"),
}
Q_MAX, LOWER_Q_MAX = 8, 6
SHORTEST_CYCLE = 10
NOMINAL_STEPS = 64_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """What to train with, what to expect, and why."""

    aim: str
    """cost, balance or quality."""
    precision: Mapping[str, Any]
    """The `precision` section of a study file."""
    group: str
    """small, medium or large, by compute used."""
    cost_of_static8: float
    """Expected BitOPs as a share of static 8-bit training (gradients at 8 bits)."""
    cost_of_fp32: float
    """Expected BitOPs as a share of full-precision training."""
    early_share: float
    """Share of the first tenth of training at q_min; 0 for constant bits."""
    steps: int
    """Optimizer steps the advice is for; 0 when not given."""
    seconds: float | None
    """Expected training seconds, from a step that was timed; None when none was."""
    within_budget: bool
    """Whether the budget is kept."""
    reason: str
    """Why, in a sentence."""
    would_change: tuple[str, ...]
    """What would lead to other advice."""
    sources: tuple[str, ...]
    """Where the rules come from."""

    def build(self, total_steps: int) -> PrecisionConfig:
        """The advised configuration, checked for a training of that many steps.

        Raises:
            ValueError: The training is too short for it.
        """
        config = build(PrecisionConfig, self.precision)
        config.build(total_steps)
        return config

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        plain = asdict(self)
        return {**plain, "precision": dict(self.precision), "would_change": list(self.would_change)}

    def __str__(self) -> str:
        """Write the advice in a few lines."""
        setting = ", ".join(f"{key}: {value}" for key, value in self.precision.items())
        lines = [
            f"precision: {{{setting}}}",
            f"expected BitOPs: {self.cost_of_static8:.1%} of static 8 bits, {self.cost_of_fp32:.2%} of full precision",
            f"expected seconds: {self.seconds:.0f} (timed step)" if self.seconds else "expected seconds: not timed",
            f"why: {self.reason}",
            *(f"other advice if: {text}" for text in self.would_change),
        ]
        return "\n".join(lines)


def advise(
    aim: str = "balance",
    *,
    domain: str = "",
    model: str = "",
    large_scale: bool = False,
    fine_tuning: bool = False,
    q_min: int = 0,
    budget: float = 0.0,
    steps: int = 0,
    seconds: float = 0.0,
    step_seconds: float = 0.0,
    study: Sequence[StudyArm] = (),
) -> Advice:
    """Choose a precision schedule.

    Args:
        aim: `cost` (save the most), `balance`, or `quality` (the best model).
        domain: One of `DOMAINS`; found from `model` when left out, else vision.
        model: Name of the model, such as mobilenet_v2.
        large_scale: Whether data and model are large, as ImageNet training is; so is the domain imagenet.
        fine_tuning: Whether training starts from a pretrained model.
        q_min: Fewest bits, from a range test; 0 takes the published value of the domain.
        budget: Most BitOPs, as a share of static 8-bit training; 0 for no limit.
        steps: Optimizer steps; 0 when not known.
        seconds: Most training seconds; 0 for no limit. Needs `step_seconds`.
        step_seconds: Seconds of one step, measured on this device.
        study: Arms of a finished study of your own; they go before every rule.

    Raises:
        ValueError: An unknown aim or domain, or a number out of range.

    Examples:
        >>> advice = advise("cost", model="resnet20", steps=64_000)
        >>> dict(advice.precision)
        {'schedule': 'RTH', 'q_min': 3, 'q_max': 8, 'num_cycles': 8, 'grad_bits': 8}
        >>> round(advice.cost_of_static8, 3)
        0.399
    """
    check_choice("aim", aim, AIMS)
    domain = domain or domain_of(model)
    check_choice("domain", domain, tuple(DOMAINS))
    q_min = check_bits("q_min", q_min, low=0, high=Q_MAX)
    for name, value in {"budget": budget, "steps": steps, "seconds": seconds, "step_seconds": step_seconds}.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"`{name}={value}` must be ≥ 0; 0 means not given")
    if seconds and not step_seconds:
        raise ValueError(
            f"`seconds={seconds}` needs `step_seconds`: BitOPs say nothing about seconds, so time a step on this device"
        )
    limited = bool(seconds) and (not steps or steps * step_seconds > seconds)
    total = max(1, int(seconds / step_seconds)) if limited else steps
    large = large_scale or domain == "imagenet"
    own = choose(aim, study, budget)
    if own is not None:
        precision, reason, fits = dict(own.arm.precision), own.reason, True
    else:
        low = q_min or DOMAINS[domain][0]
        precision, fits = _by_rules(aim, low, large, fine_tuning, budget, total)
        reason = _reason(aim, precision, domain, large, fine_tuning, bool(q_min))
        if study:
            reason = f"no arm of the study qualifies, so the published rules decide: {reason}"
    if not fits:
        reason += f"; nothing allowed here stays within {budget:.0%} of static 8 bits, this is the cheapest"
    if limited:
        word = f"shortens the training to {total:,} steps: at simulated precision no schedule makes a step faster"
        reason += f"; the limit of {seconds:g} s {word}"
    config = build(PrecisionConfig, precision)
    schedule, grad_bits = config.build(total or NOMINAL_STEPS), config.backward_bits
    return Advice(
        aim=aim,
        precision=precision,
        group=schedule.group if schedule else GROUPS[2],
        cost_of_static8=schedule.relative_cost(grad_bits, reference=8) if schedule else 16.0,
        cost_of_fp32=schedule.relative_cost(grad_bits) if schedule else 1.0,
        early_share=_early_share(schedule),
        steps=total,
        seconds=total * step_seconds if total and step_seconds else None,
        within_budget=fits,
        reason=reason,
        would_change=_would_change(aim, large, fine_tuning, bool(q_min), own is not None),
        sources=("your study",) if own is not None else ("arXiv 2403.02243", "arXiv 2101.09868"),
    )


def domain_of(model: str) -> str:
    """The domain that a model's name points to; vision when none does.

    Examples:
        >>> domain_of("mobilenet_v2"), domain_of("torchvision:retinanet_resnet50_fpn"), domain_of("resnet20")
        ('mobile', 'detection', 'vision')
    """
    name = model.lower()
    if name.startswith("torchvision:resnet"):
        return "imagenet"
    for domain, words in _WORDS.items():
        if any(word in name for word in words) and (domain != "imagenet" or name.startswith("torchvision:")):
            return domain
    return "vision"


def _early_share(schedule: Schedule | None) -> float:
    """Share of the first tenth at the fewest bits; none for constant bits."""
    if schedule is None or schedule.q_min == schedule.q_max:
        return 0.0
    return schedule.share_at(schedule.q_min, first=0.1)


def _by_rules(
    aim: str, q_min: int, large: bool, fine_tuning: bool, budget: float, steps: int
) -> tuple[dict[str, Any], bool]:
    """The dearest setting from the aim's group downwards that keeps the budget, or the cheapest one."""
    top = GROUPS.index(_GROUP_OF_AIM[aim])
    lowest = 1 if large else 0
    cycles = _cycles(steps, fine_tuning)
    tried: list[dict[str, Any]] = []
    for q_max in (Q_MAX, LOWER_Q_MAX):
        for group in reversed(GROUPS[lowest : max(top, lowest) + 1]):
            if q_min <= q_max:
                name = _of_group(group, q_min, q_max, cycles, fine_tuning)
                setting = {"schedule": name, "q_min": q_min, "q_max": q_max, "num_cycles": cycles, "grad_bits": q_max}
                tried.append(setting)
    costs = [_cost(setting, steps) for setting in tried]
    if not budget or costs[0] <= budget:
        return tried[0], True
    fitting = [index for index, cost in enumerate(costs) if cost <= budget]
    if fitting:
        return tried[max(fitting, key=costs.__getitem__)], True
    return tried[costs.index(min(costs))], False


def _cost(setting: Mapping[str, Any], steps: int) -> float:
    schedule = PrecisionConfig(**setting).build(steps or NOMINAL_STEPS)
    return schedule.relative_cost(setting["grad_bits"], reference=8) if schedule else 16.0


def _cycles(steps: int, fine_tuning: bool) -> int:
    wanted = 2 if fine_tuning else 8
    while steps and wanted > 1 and steps < wanted * SHORTEST_CYCLE:
        wanted //= 2
    return wanted


def _of_group(group: str, q_min: int, q_max: int, cycles: int, fine_tuning: bool) -> str:
    if fine_tuning or cycles % 2 or q_min == q_max:
        return STUDIED_MOST[group]
    shares: dict[str, tuple[float, float]] = {}
    for name in TEN_SCHEDULES:
        long = PrecisionSchedule.named(
            name, q_min=q_min, q_max=q_max, num_cycles=cycles, total_steps=max(NOMINAL_STEPS, cycles)
        )
        if _group_of(name) == group:
            shares[name] = (long.share_at(q_min, first=0.1), long.mean_bits)
    return min(shares, key=shares.__getitem__)


def _group_of(name: str) -> str:
    return PrecisionSchedule.named(name, q_min=3, q_max=8, num_cycles=8, total_steps=NOMINAL_STEPS).group


def _reason(aim: str, precision: Mapping[str, Any], domain: str, large: bool, fine_tuning: bool, tested: bool) -> str:
    name = precision["schedule"]
    group = _group_of(name)
    goal = {"cost": "saving the most", "balance": "balance", "quality": "the best model"}[aim]
    why = f"{goal} asks for a {_GROUP_OF_AIM[aim]} schedule"
    if group != _GROUP_OF_AIM[aim]:
        kept = "a large-scale task rules small ones out" if large and group == "medium" else "the budget asks for less"
        why += f" but {kept}, hence a {group} one"
    if fine_tuning:
        why += f"; a pretrained model is past its critical period, so {name}, the one studied most, with few cycles"
    else:
        why += f"; of these {name} spends least of the first tenth of training at q_min, where damage would last"
    origin = "your range test" if tested else f"what was published for {DOMAINS[domain][1]}"
    return f"{why}; q_min {precision['q_min']} is {origin}"


def _would_change(aim: str, large: bool, fine_tuning: bool, tested: bool, own: bool) -> tuple[str, ...]:
    found: list[str] = []
    if not tested and not own:
        found.append("a range test on your model and data finds another q_min (trivet range-test)")
    if own:
        found.append("more seeds decide an arm that is undecided now")
    else:
        found.append("a study of your own shows a cheaper arm equivalent, or this one worse (--from STUDY)")
    if aim == "cost" and not large and not own:
        found.append("the task is large-scale: then a medium schedule, small ones can hurt there")
    if not fine_tuning and not own:
        found.append("you start from a pretrained model: then 2 cycles")
    return tuple(found)
