"""How well scores separate in- from out-distribution. Torch-free: numpy in, floats out.

Scores are log-odds of the confidence, so that nothing ties at 1.0; +inf is a score like any other (no guarantee: above
everything), NaN is none and raises.

>>> auc([2.0, 3.0], [1.0, 2.0]), conservative_auc([2.0, 3.0], [1.0, 2.0])
(0.875, 0.75)
"""

from certood.metrics.answers import accuracy, accuracy_above, confidences, mean_confidence
from certood.metrics.forms import Forms
from certood.metrics.intervals import Interval, bootstrap_interval, bootstrap_mean, delong_interval
from certood.metrics.ranking import auc, aupr_in, aupr_out, conservative_auc, fpr_at_tpr

__all__ = [
    "Forms",
    "Interval",
    "accuracy",
    "accuracy_above",
    "auc",
    "aupr_in",
    "aupr_out",
    "bootstrap_interval",
    "bootstrap_mean",
    "confidences",
    "conservative_auc",
    "delong_interval",
    "fpr_at_tpr",
    "mean_confidence",
]
