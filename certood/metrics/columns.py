"""What is a column of scores and what is none: a metric of nothing, or of NaN, is undefined and so never a number."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certood.errors import MetricError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def column_of(name: str, values: ArrayLike, kinds: str = "iuf") -> Floats:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists; tensors on a device or with a gradient
        raise MetricError(f"{name} is no array of numbers: {error}") from None
    if array.ndim != 1:
        raise MetricError(f"{name} has shape {array.shape}; give one number per sample, shape (N,)")
    if array.size and array.dtype.kind not in kinds:
        raise MetricError(f"{name} holds {array.dtype}, not {'real' if 'f' in kinds else 'whole'} numbers")
    return array.astype(np.float64)


def nonempty(name: str, column: Floats) -> Floats:
    if not column.size:
        raise MetricError(f"{name} is empty; a metric needs at least one sample")
    return column


def scores_of(name: str, values: ArrayLike) -> Floats:
    column = nonempty(name, column_of(name, values))
    missing = np.flatnonzero(np.isnan(column))
    if missing.size:
        raise MetricError(f"{name} holds {missing.size} NaN, the first in row {missing[0]}; a NaN has no rank")
    return column


def hits_of(labels: ArrayLike, predictions: ArrayLike) -> NDArray[np.bool_]:
    right = nonempty("labels", column_of("labels", labels, kinds="iu"))
    answered = nonempty("predictions", column_of("predictions", predictions, kinds="iu"))
    if right.shape != answered.shape:
        raise MetricError(f"{right.size} labels but {answered.size} predictions; give one of each per sample")
    return np.asarray(right == answered)
