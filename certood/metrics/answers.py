"""One set at a time: how often the answer is right, and how sure the classifier is."""

import numpy as np
from numpy.typing import ArrayLike

from certood.errors import MetricError
from certood.metrics.columns import Floats, hits_of, scores_of


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The share of samples whose prediction is their label."""
    return float(np.mean(hits_of(labels, predictions)))


def accuracy_above(labels: ArrayLike, predictions: ArrayLike, scores: ArrayLike, threshold: float) -> float:
    """The accuracy among accepted samples, score >= threshold; undefined, and an error, where none is accepted."""
    hits, column = hits_of(labels, predictions), scores_of("scores", scores)
    if hits.shape != column.shape:
        raise MetricError(f"{hits.size} labels but {column.size} scores; give one of each per sample")
    accepted = column >= threshold
    if not accepted.any():
        raise MetricError(f"no score reaches the threshold {threshold:g} (largest: {column.max():g}); take a lower one")
    return float(np.mean(hits[accepted]))


def confidences(scores: ArrayLike) -> Floats:
    """sigmoid(s) = 1 / (1 + e^-s), with e^-|s| so that nothing overflows and small confidences keep their digits."""
    column = scores_of("scores", scores)
    small = np.exp(-np.abs(column))
    return np.where(column >= 0, 1.0, small) / (1.0 + small)


def mean_confidence(scores: ArrayLike) -> float:
    return float(np.mean(confidences(scores)))
