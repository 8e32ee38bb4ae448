"""A guard in the shape that two other libraries expect. Neither is imported before it is asked for.

| | pytorch_ood | scikit-learn |
| --- | --- | --- |
| larger score means | more of an outlier | more of an inlier |
| `predict` gives | that score | 1 for an inlier, -1 for an outlier |
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certood.calibration import Calibration
from certood.errors import GuardError
from certood.guard import Guard


def pytorch_ood(guard: Guard) -> Any:
    """A detector by the conventions of `pytorch_ood` (Kirchheim et al. 2022), and of its class if that is installed.

    `predict(x)`, also `detector(x)`: [N] outlier scores for a batch of images in [0, 1], the negative log-odds of the
    confidence. There is nothing to fit: `fit` returns the detector as it is.
    """
    try:
        from pytorch_ood.api import Detector as Base
    except ImportError:
        Base = object

    class GuardDetector(Base):  # type: ignore[misc]
        def fit(self, data_loader: Any = None, device: Any = None) -> "GuardDetector":
            return self

        def fit_features(self, x: Tensor, y: Tensor) -> "GuardDetector":
            return self

        def predict(self, x: Tensor) -> Tensor:
            return torch.from_numpy(-guard.scores(x)).to(x.device)

        def predict_features(self, x: Tensor) -> Tensor:
            raise GuardError("a guard looks at images, it has no score for features: call predict")

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
            return self.predict(*args, **kwargs)

    return GuardDetector()


def scikit_learn(guard: Guard, accept: float = 0.95) -> Any:
    """An estimator by the conventions of scikit-learn for outliers: `classes_` are -1 (outlier) and 1 (inlier).

    `fit(X, y)` calibrates on the inliers of X, those with y = 1, or all of X without y; it does not train, and touches
    neither the guard nor its run. An estimator that was not fitted takes the guard's calibration. `decision_function`
    is the score above the threshold, `predict` its sign. X is whatever a guard takes, or flat rows [N, C * S * S].
    """
    from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin

    class GuardEstimator(ClassifierMixin, OutlierMixin, BaseEstimator):  # type: ignore[misc]
        def __init__(self, guard: Guard, accept: float = 0.95) -> None:
            self.guard, self.accept = guard, accept
            self.classes_ = np.array([-1, 1])

        def fit(self, X: Any, y: Any = None) -> "GuardEstimator":  # scikit-learn's name
            scores = self.score_samples(X)
            inliers = np.full(len(scores), True) if y is None else np.asarray(y) == 1
            self.calibration_ = Calibration.of(scores[inliers], self.accept, self.guard.weights)
            return self

        def score_samples(self, X: Any) -> NDArray[np.float64]:
            return self.guard.scores(_images(X, self.guard))

        def decision_function(self, X: Any) -> NDArray[np.float64]:
            calibration = getattr(self, "calibration_", None) or self.guard.calibration
            if calibration is None:
                raise GuardError("neither the guard nor this estimator has a threshold: call fit or guard.calibrate")
            return self.score_samples(X) - calibration.threshold

        def predict(self, X: Any) -> NDArray[np.int64]:
            return np.where(self.decision_function(X) >= 0, 1, -1)

        def __sklearn_is_fitted__(self) -> bool:
            return hasattr(self, "calibration_") or self.guard.calibration is not None

    return GuardEstimator(guard, accept)


def _images(rows: Any, guard: Guard) -> Any:
    """Flat rows become images again."""
    channels, size = guard.form
    shape: tuple[int, ...] = tuple(getattr(rows, "shape", ()))
    if len(shape) == 2 and shape[1] == channels * size * size and shape != (size, size):
        return rows.reshape(-1, channels, size, size)
    return rows
