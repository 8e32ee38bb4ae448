"""The conventions of two other libraries, tried with the second one's own tools."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

from certood.adapters import pytorch_ood, scikit_learn
from certood.data.sources import load as load_set
from certood.errors import GuardError
from certood.guard import Guard, load
from certood.metrics import auc


@pytest.fixture(scope="module")
def guard(runs: Path) -> Guard:
    found = load(runs / "good")
    found.folder = found.calibration = None  # nothing is written, whatever other tests left there
    return found


@pytest.fixture(scope="module")
def sides() -> tuple[np.ndarray, np.ndarray]:
    names = ("demo_digits", "demo_photos")
    return tuple(load_set(n, "test", folder=None, channels=1, size=28).images(np.arange(60)) for n in names)  # type: ignore[return-value]


def test_pytorch_ood_scores_outliers_higher(guard: Guard, sides: Any) -> None:
    detector = pytorch_ood(guard)
    inside, outside = (torch.from_numpy(side).float() / 255 for side in sides)
    assert detector.fit(None) is detector
    assert detector(inside).shape == (60,)
    assert torch.equal(detector(inside), detector.predict(inside))
    ours = auc(guard.scores(inside), guard.scores(outside))
    theirs = roc_auc_score(np.repeat([0, 1], 60), torch.cat([detector(inside), detector(outside)]))
    assert theirs == pytest.approx(ours)
    with pytest.raises(GuardError, match="call predict"):
        detector.predict_features(inside)


def test_it_is_one_of_pytorch_ood_where_that_is_installed(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    package, api = types.ModuleType("pytorch_ood"), types.ModuleType("pytorch_ood.api")

    class Detector:
        """As the package's own."""

    api.Detector = Detector  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytorch_ood", package)
    monkeypatch.setitem(sys.modules, "pytorch_ood.api", api)
    assert isinstance(pytorch_ood(guard), Detector)


def test_scikit_learn(guard: Guard, sides: Any) -> None:
    inside, outside = sides
    both, truth = np.concatenate([inside, outside]), np.repeat([1, -1], 60)
    flat = both.reshape(120, -1)
    estimator = scikit_learn(guard, accept=0.9)
    with pytest.raises(GuardError, match="call fit"):
        estimator.predict(both)
    assert estimator.fit(both, truth) is estimator
    assert guard.calibration is None
    assert list(estimator.classes_) == [-1, 1]
    margins = estimator.decision_function(both)
    assert np.array_equal(estimator.predict(both), np.where(margins >= 0, 1, -1))
    assert (estimator.predict(inside) == 1).mean() >= 0.9
    assert np.array_equal(estimator.predict(flat), estimator.predict(both))
    assert np.array_equal(estimator.fit(inside).predict(both), estimator.predict(both))
    assert estimator.score(both, truth) == (estimator.predict(both) == truth).mean()
    assert roc_auc_score(truth, margins) == pytest.approx(auc(guard.scores(inside), guard.scores(outside)))
    calibrated = scikit_learn(guard).fit(inside).calibration_
    guard.calibration = calibrated
    assert np.array_equal(scikit_learn(guard).predict(both) == 1, guard.predict(both).accepted)
    guard.calibration = None


def test_scikit_learns_tools(guard: Guard, sides: Any) -> None:
    both, truth = np.concatenate(sides).reshape(120, -1), np.repeat([1, -1], 60)
    estimator = scikit_learn(guard, accept=0.8)
    assert clone(estimator).accept == 0.8
    scores = cross_val_score(estimator, both, truth, cv=3, scoring="roc_auc")
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    assert "GuardEstimator" in repr(estimator)
