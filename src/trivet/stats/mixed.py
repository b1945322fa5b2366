"""A random-intercept model: runs within devices, devices within classes, estimated by REML.

    y_ij = β_class(i) + u_i + e_ij,   u_i ~ N(0, σ_u²) per device,   e_ij ~ N(0, σ_e²) per run

With λ = σ_u²/σ_e² and weights w_i = n_i / (1 + n_i λ) everything depends on the device means ȳ_i and the sum of squares
within devices S (N runs on k devices of 2 classes, W_c the sum of the weights of a class):

    β_c(λ) = Σ w_i ȳ_i / W_c,   R(λ) = S + Σ w_i (ȳ_i − β_c)²,   σ_e² = R / (N − 2)
    −2 log REML(λ) = (N − 2) log R(λ) + Σ log(1 + n_i λ) + log W_a + log W_b + constant

which is minimized over the one number λ ≥ 0 (Patterson and Thompson 1971; Harville 1977). The difference between the
classes has the standard error σ_e √(1/W_a + 1/W_b) and k − 2 degrees of freedom (containment): exact with equally many
runs on each device, and honest otherwise, because more runs on the same devices cannot buy degrees of freedom.

Not covered: random slopes, crossed factors (see `variance_components`), covariates of single runs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from trivet.stats.margins import Region, region_of
from trivet.stats.result import Result
from trivet.stats.values import FloatArray, Values, as_values, check_alpha, check_margin, mean_and_sd
from trivet.stats.wording import NumberStyle, p_text, percent

__all__ = ["Devices", "MixedModel", "check_devices", "mixed_model"]

Devices = Mapping[str, Values]
"""Device → outcomes of its runs."""

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedModel(Result):
    """Fit of the random-intercept model to two classes of devices."""

    names: tuple[str, str]
    """Names of the two classes."""
    devices: tuple[int, int]
    """Devices of each class."""
    runs: tuple[int, int]
    """Runs of each class."""
    mean_a: float
    """Estimated mean of class a."""
    mean_b: float
    """Estimated mean of class b."""
    effect: float
    """Difference b − a, in the metric's unit."""
    standard_error: float
    """Its standard error."""
    df: int
    """Degrees of freedom: devices − 2."""
    low: float
    """Lower end of the 1 − alpha interval."""
    high: float
    """Upper end of the 1 − alpha interval."""
    p: float
    """Two-sided p-value."""
    alpha: float
    """Error rate of the interval."""
    between: float
    """Variance between devices of one class, σ_u²."""
    within: float
    """Variance between runs on one device, σ_e²."""
    log_likelihood: float
    """Restricted log-likelihood at the optimum; not a number when no device has two runs that differ."""
    region: Region
    """The effect against the margin."""

    @property
    def reliability(self) -> float:
        """Share of the variance that lies between devices, σ_u² / (σ_u² + σ_e²); 0 when nothing varies."""
        total = self.between + self.within
        return self.between / total if total > 0.0 else 0.0

    def __str__(self) -> str:
        """Write effect, interval, units and both variances on one line."""
        write = NumberStyle((self.high - self.low) / 2, self.effect)
        return (
            f"{self.names[1]} − {self.names[0]} = {write(self.effect)} ({percent(1 - self.alpha)} interval "
            f"{write(self.low)} to {write(self.high)}, random-intercept model (REML), {self.devices[0]} and "
            f"{self.devices[1]} devices with {sum(self.runs)} runs, {self.df} degrees of freedom, {p_text(self.p)}; "
            f"SD between devices {math.sqrt(self.between):.3g}, within {math.sqrt(self.within):.3g})"
        )


def check_devices(a: Devices, b: Devices, names: tuple[str, str]) -> tuple[list[FloatArray], list[FloatArray]]:
    """Runs of each device of both classes.

    Raises:
        TypeError: A class is no mapping, or a device's runs are not a flat sequence of numbers.
        ValueError: A value is not finite, a device has no run, or a device is in both classes.
    """
    for name, devices in zip(names, (a, b), strict=True):
        if not isinstance(devices, Mapping):
            raise TypeError(
                f"class {name!r} is a {type(devices).__name__}; give a mapping of device → list of outcomes."
            )
    twice = sorted(set(a) & set(b))
    if twice:
        raise ValueError(
            f"device {twice[0]!r} is in both classes; a device belongs to one. For settings that vary on one device "
            "pair by seed (`decide`)."
        )
    found: list[list[FloatArray]] = []
    for devices in (a, b):
        arrays = [as_values(runs, device) for device, runs in devices.items()]
        for device, runs in zip(devices, arrays, strict=True):
            if runs.size == 0:
                raise ValueError(f"device {device!r} has no run; leave it out and report it, or run it.")
        found.append(arrays)
    return found[0], found[1]


def mixed_model(
    a: Devices,
    b: Devices,
    margin: float = 0.0,
    *,
    alpha: float = 0.05,
    names: tuple[str, str] = ("a", "b"),
) -> MixedModel:
    """Fit the random-intercept model to runs on two classes of devices.

    Args:
        a: Device → outcomes, for the devices of the first class.
        b: The same for the second class.
        margin: Largest difference between classes that does not matter; 0 means "none given".
        alpha: Error rate of the interval, in (0, 0.5).
        names: Names of the classes.

    Raises:
        TypeError: A class is no mapping of device → numbers.
        ValueError: A value is not finite; a device has no run or is in both classes; a class has no device; there are
            fewer than 3 devices in all; or an argument is out of range.

    Examples:
        >>> cpus = {"c1": [1.0, 1.2], "c2": [1.4, 1.5], "c3": [1.1, 0.9]}
        >>> gpus = {"g1": [2.0, 2.1], "g2": [2.4, 2.2, 2.3], "g3": [2.0, 1.8]}
        >>> fit = mixed_model(cpus, gpus, names=("CPU", "GPU"))
        >>> fit.df, round(fit.effect, 2), fit.low > 0
        (4, 0.9, True)
    """
    check_alpha(alpha)
    check_margin(margin, zero=True)
    first, second = check_devices(a, b, names)
    k_a, k_b = len(first), len(second)
    if min(k_a, k_b) < 1 or k_a + k_b < 3:
        raise ValueError(
            f"{k_a} and {k_b} devices given; a comparison of classes needs at least 1 of each and 3 in all. Devices "
            "are the units: more runs on the same devices do not replace them."
        )
    groups = [*first, *second]
    everything = np.concatenate(groups)
    middle = float(np.median(everything))
    scale = float(np.abs(everything - middle).max())
    if scale <= 8.0 * _EPSILON * float(np.abs(everything).max()):
        scale = 0.0
    fit = _fit([(group - middle) / (scale or 1.0) for group in groups], k_a)
    error = fit.error * scale
    effect = (fit.mean_b - fit.mean_a) * scale
    df = k_a + k_b - 2
    held = region_of(effect, error, df, margin, alpha)
    runs = (sum(x.size for x in first), sum(x.size for x in second))
    shift = (sum(runs) - 2) * math.log(scale) if scale else 0.0
    return MixedModel(
        names=names,
        devices=(k_a, k_b),
        runs=runs,
        mean_a=middle + fit.mean_a * scale,
        mean_b=middle + fit.mean_b * scale,
        effect=effect,
        standard_error=error,
        df=df,
        low=held.low,
        high=held.high,
        p=held.p_difference,
        alpha=alpha,
        between=fit.between * scale**2,
        within=fit.within * scale**2,
        log_likelihood=fit.log_likelihood - shift,
        region=held,
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    mean_a: float
    mean_b: float
    error: float
    between: float
    within: float
    log_likelihood: float


def _fit(groups: list[FloatArray], k_a: int) -> _Fit:
    """Fit to devices of which the first `k_a` are of class a."""
    n = np.array([group.size for group in groups], dtype=np.float64)
    pairs = [mean_and_sd(group) for group in groups]
    means = np.array([mean for mean, _ in pairs])
    inside = math.fsum((size - 1) * sd**2 for size, (_, sd) in zip(n.tolist(), pairs, strict=True))
    rest = float(n.sum()) - 2.0
    if inside <= 1e-24:  # one run on each device, or no spread within any: least squares on the device means
        mean_a, mean_b, inverse, around = _weighted(np.ones_like(n), means, k_a)
        variance = around / (len(groups) - 2)
        between, within = (0.0, variance) if rest + 2.0 == len(groups) else (variance, 0.0)
        return _Fit(mean_a, mean_b, math.sqrt(variance * inverse), between, within, math.nan)

    def deviance(lam: float) -> float:
        weights = n / (1.0 + n * lam)
        around = _weighted(weights, means, k_a)[3]
        logs = math.log(weights[:k_a].sum()) + math.log(weights[k_a:].sum())
        return rest * math.log(inside + around) + float(np.log1p(n * lam).sum()) + logs

    lam = _minimize(deviance)
    mean_a, mean_b, inverse, around = _weighted(n / (1.0 + n * lam), means, k_a)
    within = (inside + around) / rest
    constant = rest * (math.log(2.0 * math.pi / rest) + 1.0)
    log_likelihood = -0.5 * (deviance(lam) + constant)
    return _Fit(mean_a, mean_b, math.sqrt(within * inverse), lam * within, within, log_likelihood)


def _weighted(weights: FloatArray, means: FloatArray, k_a: int) -> tuple[float, float, float, float]:
    """Weighted class means, 1/W_a + 1/W_b, and the weighted sum of squares around the means."""
    mass_a, mass_b = float(weights[:k_a].sum()), float(weights[k_a:].sum())
    mean_a = float(weights[:k_a] @ means[:k_a]) / mass_a
    mean_b = float(weights[k_a:] @ means[k_a:]) / mass_b
    centers = np.where(np.arange(means.size) < k_a, mean_a, mean_b)
    return mean_a, mean_b, 1.0 / mass_a + 1.0 / mass_b, float(weights @ (means - centers) ** 2)


def _minimize(deviance: Callable[[float], float]) -> float:
    """λ ≥ 0 with the smallest deviance: a grid over λ/(1 + λ), then Brent between its neighbors."""
    from scipy import optimize

    def at(share: float) -> float:
        return deviance(share / (1.0 - share))

    grid = np.concatenate([[0.0], np.geomspace(1e-3, 0.5, 14), 1.0 - np.geomspace(0.4, 1e-9, 24)])
    values = [at(float(share)) for share in grid]
    best = int(np.argmin(values))
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    found = optimize.minimize_scalar(at, bounds=(float(low), float(high)), method="bounded", options={"xatol": 1e-10})
    share = float(found.x) if float(found.fun) < values[best] else float(grid[best])
    return share / (1.0 - share)
