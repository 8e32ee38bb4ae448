"""How far a metric may be off because the test sets are samples: bootstrap, and DeLong where it applies.

The width is that of the test sets' sampling, not of training. Where all in lie above all out it is 0, which says
nothing about samples not yet seen.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certood.errors import MetricError
from certood.metrics.columns import Floats, column_of, nonempty
from certood.metrics.ranking import KERNELS, auc, counts_of, levels_of

BATCH = 2**18  # numbers held at once by a bootstrap: 2 MB an array stays in a core's cache, however large the sets


class Interval(NamedTuple):
    """A metric and the ends of its interval."""

    value: float
    low: float
    high: float


def bootstrap_interval(
    metric: Callable[..., float],
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    share: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    **settings: float,
) -> Interval:
    """The percentile interval (Efron 1979) of a metric above; `settings` are the metric's own, as tpr=0.9.

    In- and out-samples are drawn apart (stratified), as the two test sets were. Its width is that of the test sets'
    sampling, not of training; where all in lie above all out, it is 0 and says nothing about samples not yet seen.
    """
    kernel = KERNELS.get(metric)
    if kernel is None:
        raise MetricError(f"no bootstrap for {metric!r}; choose from {', '.join(each.__name__ for each in KERNELS)}")
    levels, in_level, out_level = levels_of(in_scores, out_scores)
    value = float(kernel(counts_of(in_level[None], levels), counts_of(out_level[None], levels), **settings)[0])
    in_draw, out_draw = _generators(seed, 2)

    def drawn(rows: int) -> Floats:
        in_counts = counts_of(_resampled(in_draw, in_level, rows), levels)
        out_counts = counts_of(_resampled(out_draw, out_level, rows), levels)
        return kernel(in_counts, out_counts, **settings)

    return Interval(value, *_percentiles(drawn, in_level.size + out_level.size, share, resamples))


def delong_interval(in_scores: ArrayLike, out_scores: ArrayLike, share: float = 0.95) -> Interval:
    """DeLong et al. (1988) for `auc`, normal and cut to [0, 1]; in O(n log n) as Sun and Xu (2014).

    With V_i = P(out < in_i) + P(out = in_i) / 2 and W_j = P(in > out_j) + P(in = out_j) / 2, both of mean AUC:
    Var(AUC) = Var(V) / n + Var(W) / m, with the unbiased variances. Width 0 means the same as for the bootstrap.
    """
    levels, in_level, out_level = levels_of(in_scores, out_scores)
    n, m = in_level.size, out_level.size
    if min(n, m) < 2:
        raise MetricError(f"DeLong's interval needs 2 samples on each side; there are {n} in and {m} out")
    in_counts, out_counts = counts_of(in_level[None], levels)[0], counts_of(out_level[None], levels)[0]
    out_below = (out_counts.cumsum() - out_counts / 2) / m  # of each level, ties half: the midranks of Sun and Xu
    in_above = (n - in_counts.cumsum() + in_counts / 2) / n
    value = float(KERNELS[auc](in_counts[None], out_counts[None])[0])
    variance = out_below[in_level].var(ddof=1) / n + in_above[out_level].var(ddof=1) / m
    reach = NormalDist().inv_cdf((1 + _checked_share(share)) / 2) * math.sqrt(variance)
    return Interval(value, max(0.0, value - reach), min(1.0, value + reach))


def bootstrap_mean(values: ArrayLike, share: float = 0.95, resamples: int = 1000, seed: int = 0) -> Interval:
    """The percentile interval of a mean: of an accuracy (`labels == predictions`) or of `confidences(scores)`."""
    column = nonempty("values", column_of("values", values, kinds="biuf"))
    if not np.isfinite(column).all():
        raise MetricError("values must be finite to have a mean; turn scores into confidences(scores) first")
    (draw,) = _generators(seed, 1)

    def drawn(rows: int) -> Floats:
        return np.asarray(_resampled(draw, column, rows).mean(1))

    return Interval(float(column.mean()), *_percentiles(drawn, column.size, share, resamples))


def _resampled(draw: np.random.Generator, column: NDArray[Any], rows: int) -> NDArray[Any]:
    return column[draw.integers(0, column.size, (rows, column.size))]


def _generators(seed: int, count: int) -> list[np.random.Generator]:
    if seed < 0:
        raise MetricError(f"seed must be 0 or more; it is {seed}")
    return np.random.default_rng(seed).spawn(count)


def _percentiles(drawn: Callable[[int], Floats], size: int, share: float, resamples: int) -> tuple[float, float]:
    """The ends over `resamples` values; `drawn(rows)` gives `rows` of them, out of rows * size numbers."""
    tail = (1 - _checked_share(share)) / 2
    if resamples < 1:
        raise MetricError(f"resamples must be 1 or more; it is {resamples}")
    step = max(1, BATCH // size)
    found = [drawn(min(step, resamples - first)) for first in range(0, resamples, step)]
    low, high = np.quantile(np.concatenate(found), [tail, 1 - tail])
    return float(low), float(high)


def _checked_share(share: float) -> float:
    if not 0 < share < 1:
        raise MetricError(f"share must lie between 0 and 1, as 0.95; it is {share}")
    return share
