"""CCU and ProoD through everything that comes after training, which knows them by their detectors alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import certood
from certood.building import network_of
from certood.cli_evaluate import Live
from certood.contest import Contest
from certood.data.sources import load
from certood.discriminators import NegativeLinear
from certood.errors import GuardError
from certood.evaluation import Plan
from certood.recipes import recipe
from certood.report.page import report
from certood.runs import Run, load_weights
from certood.summary import summaries
from certood.training import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("systems")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("certood.assembly.FITTED", 3000)
        for method in ("oe", "ccu", "prood"):
            tiny = replace(recipe("demo", method, epochs=2), in_limit=600, out_limit=600, batch_size=64, eps=0.01)
            train(replace(tiny, components=5, discriminator_epochs=2), folder / method, quiet=True)
    return folder


def test_they_are_evaluated_attacked_and_reported(trained: Path, tmp_path: Path) -> None:
    """Evaluation stops if a score, clean or attacked, exceeds its bound by anything."""
    plan = Plan("quick", attacked=10, batch=10)
    contest = Contest(tmp_path, None, plan, (0.01, 0.3), (), 20, torch.device("cpu"), Live(quiet=True))
    found = {run.name: run for run in summaries(contest.run([trained / name for name in ("oe", "ccu", "prood")]))}
    assert {run.title for run in found.values()} == {"OE", "CCU", "ProoD"}
    noise = {cell.eps: cell.aucs for cell in found["ccu"].cells if cell.out_set == "uniform_noise"}
    assert noise[0.3].clean > 0.9
    assert noise[0.3].guaranteed == 0  # the ball that holds this box holds in-images, too
    assert noise[0.01].guaranteed > 0.9  # and that of a small box does not, around noise
    assert report(tmp_path, tmp_path / "report").is_file()


@pytest.mark.parametrize("method", ["ccu", "prood"])
def test_they_are_guards(method: str, trained: Path, tmp_path: Path) -> None:
    digits = load("demo_digits", "test", folder=None, channels=1, size=28).images(np.arange(100))
    guard = certood.load(trained / method, "cpu")
    assert guard.detector.sound
    guard.calibrate(digits, accept=0.9)
    certified = guard.certify(digits[:10], 0.001)
    assert (certified.confidences <= certified.upper).all()
    assert (certified.lower <= certified.confidences).all()
    noise = np.random.default_rng(0).integers(0, 256, (4, 1, 28, 28), np.uint8)
    assert (guard.radius(noise) >= 0).all()
    Image.fromarray(digits[0, 0]).save(tmp_path / "digit.png")
    with pytest.raises(GuardError, match="certificates are of the bounds of one network"):
        guard.certificate(tmp_path / "digit.png", 0.01)


@pytest.mark.parametrize("method", ["ccu", "prood"])
def test_a_classifier_with_batch_norm_is_used_as_any_other(method: str, tmp_path: Path) -> None:
    """Its batch norm is folded inside the whole, which stays what its detector knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("certood.assembly.FITTED", 1000)
        tiny = replace(recipe("demo", method, epochs=1), in_limit=32, out_limit=32, batch_size=16, network="R18")
        run = train(replace(tiny, components=3, discriminator_epochs=1), tmp_path / "run", quiet=True)
    network = run.load().network
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in network.modules())
    digits = load("demo_digits", "test", folder=None, channels=1, size=28).images(np.arange(8))
    certified = certood.load(tmp_path / "run", "cpu").certify(digits, 0.001)
    assert (certified.confidences <= certified.upper).all()


def test_a_loaded_discriminator_answers_as_it_was_trained(trained: Path) -> None:
    """Its last weights, -exp(w), are numbers when it is loaded: bound and execution have the same."""
    run = Run(trained / "prood")
    before = network_of(run.recipe(), 10)
    load_weights(before, run.weights)
    x = torch.rand(20, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(run.load().network(x), before.eval()(x))
    assert not any(isinstance(module, NegativeLinear) for module in run.load().network.modules())
