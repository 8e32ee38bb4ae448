"""In against out: AUC and its conservative form, FPR at a TPR, AUPR. Larger scores = more in-distribution.

No metric looks at more than how many samples of each side lie on each level of the sorted scores. So each is written
once, as a function of those counts, and a bootstrap resample is nothing but other counts. O(n log n), for the sort.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certood.errors import MetricError
from certood.metrics.columns import Floats, Integers, scores_of


def auc(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """P(in > out) + P(in = out) / 2, over all pairs: the usual AUC, as scikit-learn's (the paper's appendix on AUC)."""
    return _point(_auc, in_scores, out_scores)


def conservative_auc(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """P(in > out), over all pairs (eq. cauroc): a detector that cannot tell gets nothing for it. Never above `auc`."""
    return _point(_conservative_auc, in_scores, out_scores)


def fpr_at_tpr(in_scores: ArrayLike, out_scores: ArrayLike, tpr: float = 0.95) -> float:
    """The share of out-samples accepted (score >= threshold) at the largest threshold that accepts `tpr` of the in."""
    return _point(_fpr_at_tpr, in_scores, out_scores, tpr=tpr)


def aupr_in(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """Average precision of finding in-samples from the largest score down; scikit-learn's average_precision_score."""
    return _point(_aupr_in, in_scores, out_scores)


def aupr_out(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """Average precision of finding out-samples from the smallest score up."""
    return _point(_aupr_out, in_scores, out_scores)


# ---- metrics as functions of counts: [R, L], R resamples, L levels from the smallest score up; integers are exact ----


def _auc(in_counts: Integers, out_counts: Integers) -> Floats:
    return _dot(in_counts, 2 * out_counts.cumsum(1) - out_counts) / (2 * _pairs(in_counts, out_counts))


def _conservative_auc(in_counts: Integers, out_counts: Integers) -> Floats:
    return _dot(in_counts, out_counts.cumsum(1) - out_counts) / _pairs(in_counts, out_counts)


def _pairs(in_counts: Integers, out_counts: Integers) -> Floats:
    return np.asarray(in_counts.sum(1) * out_counts.sum(1), np.float64)  # [R]; exact below 2^53


def _dot(counts: Integers, values: NDArray[Any]) -> Floats:
    return np.asarray(np.einsum("rl,rl->r", counts, values), np.float64)  # [R]


def _fpr_at_tpr(in_counts: Integers, out_counts: Integers, tpr: float = 0.95) -> Floats:
    if not 0 < tpr <= 1:
        raise MetricError(f"tpr must lie in (0, 1]; it is {tpr}")
    accepts = in_counts[:, ::-1].cumsum(1)[:, ::-1] / in_counts.sum(1, keepdims=True)  # falls from 1.0 at the left
    threshold = (accepts >= tpr).sum(1, keepdims=True) - 1  # [R, 1]; the last level that still accepts enough
    out_from = out_counts[:, ::-1].cumsum(1)[:, ::-1]
    accepted: Floats = np.take_along_axis(out_from, threshold, 1)[:, 0] / out_counts.sum(1)
    return accepted


def _aupr_in(in_counts: Integers, out_counts: Integers) -> Floats:
    return _aupr_out(out_counts[:, ::-1], in_counts[:, ::-1])


def _aupr_out(in_counts: Integers, out_counts: Integers) -> Floats:
    """sum over levels of (step in recall) * precision; a level that no out-sample lies on adds no recall."""
    found = out_counts.cumsum(1)
    precision = found / np.maximum(found + in_counts.cumsum(1), 1)  # a resample may leave the first levels empty
    return np.asarray(_dot(out_counts, precision) / out_counts.sum(1), np.float64)


KERNELS: dict[Callable[..., float], Callable[..., Floats]] = {
    auc: _auc,
    conservative_auc: _conservative_auc,
    fpr_at_tpr: _fpr_at_tpr,
    aupr_in: _aupr_in,
    aupr_out: _aupr_out,
}


def _point(kernel: Callable[..., Floats], in_scores: ArrayLike, out_scores: ArrayLike, **settings: float) -> float:
    levels, in_level, out_level = levels_of(in_scores, out_scores)
    return float(kernel(counts_of(in_level[None], levels), counts_of(out_level[None], levels), **settings)[0])


def levels_of(in_scores: ArrayLike, out_scores: ArrayLike) -> tuple[int, Integers, Integers]:
    """The number of distinct scores, and on which of them each sample lies."""
    ins, outs = scores_of("in_scores", in_scores), scores_of("out_scores", out_scores)
    levels, position = np.unique(np.concatenate([ins, outs]), return_inverse=True)
    return levels.size, position[: ins.size], position[ins.size :]


def counts_of(samples: Integers, levels: int) -> Integers:
    """How many samples of each row lie on each level."""
    rows = len(samples)
    flat = samples + levels * np.arange(rows)[:, None]
    return np.bincount(flat.ravel(), minlength=rows * levels).reshape(rows, levels)  # [R, L]
