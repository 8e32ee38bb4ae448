"""On a GPU everything runs as it does on the CPU, and nothing that is certified is computed in TF32."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from certood import networks
from certood.attacks import Enough, maximise
from certood.bounds import Box, confidence_upper, full_precision, max_gap, score_upper
from certood.contest import Contest
from certood.detectors import Softmax
from certood.evaluation import Plan
from certood.machine import Machine
from certood.recipes import Recipe, recipe
from certood.runs import Run
from certood.training import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


class Silent:
    def say(self, line: str) -> None: ...
    def begin(self, what: str, images: int, done: int) -> None: ...
    def advance(self, images: int) -> None: ...
    def watch(self, run: str, attack: str, still_open: int) -> None: ...


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits that are bright bars, and an out-set of noise on dark ground."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for split, count in (("train", 400), ("test", 100)):
        labels = np.arange(count) % 10
        images = random.integers(0, 40, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[:, 2 * label + 3 : 2 * label + 6] = 255
        (folder / "bars").mkdir(exist_ok=True)
        np.savez(folder / "bars" / f"{split}.npz", images=images, labels=labels)
        (folder / "specks").mkdir(exist_ok=True)
        np.savez(folder / "specks" / f"{split}.npz", images=random.integers(0, 255, (count, 32, 32)).astype(np.uint8))
    return folder


def bars(**changes: object) -> Recipe:
    base = replace(recipe("demo", epochs=3), in_set="bars", out_set="specks", batch_size=50, eps=0.1)
    return replace(base, **changes)  # type: ignore[arg-type]


def large(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return networks.build("L", channels=1, size=28, classes=10).to(device)


def test_bounds_are_those_of_the_cpu_and_not_of_tf32() -> None:
    x = torch.rand(8, 1, 28, 28)
    torch.backends.cudnn.allow_tf32 = True
    for bound in (confidence_upper, score_upper):
        here = bound(large("cuda"), Box.around(x.cuda(), 0.01)).cpu().double()
        assert torch.allclose(here, bound(large("cpu"), Box.around(x, 0.01)).double(), rtol=2e-5, atol=2e-5)
    assert torch.backends.cudnn.allow_tf32


def test_scores_in_full_precision_agree_with_the_cpu_and_tf32_does_not() -> None:
    x = torch.rand(64, 1, 28, 28)
    network, exact = large("cuda"), large("cpu").double()(x.double())
    with full_precision(torch.device("cuda")), torch.no_grad():
        full = (network(x.cuda()).cpu().double() - exact).abs().max()
    torch.backends.cudnn.allow_tf32 = True
    with torch.no_grad():
        short = (network(x.cuda()).cpu().double() - exact).abs().max()
    assert full < 1e-6
    if torch.cuda.get_device_capability() >= (8, 0):
        assert short > 10 * full


def test_attacks_are_those_of_the_cpu() -> None:
    x, found = torch.rand(20, 1, 28, 28), {}
    for device in ("cpu", "cuda"):
        own, images = Softmax(large(device)), x.to(device)
        box = Box.around(images, 0.1)
        with full_precision(torch.device(device)):
            inside, ceiling = own.score(torch.rand(50, 1, 28, 28).to(device)).detach(), own.score_upper(box)
            found[device] = maximise(own.score, box, images, budget="quick", ceiling=ceiling, enough=Enough(inside))
        assert box.contains(found[device].points).all()
        assert (found[device].scores <= ceiling + 1e-4).all()
    assert torch.allclose(found["cuda"].scores.cpu(), found["cpu"].scores, atol=0.01)


def test_gradients_of_bounds_are_those_of_the_cpu() -> None:
    x, gradients = torch.rand(8, 1, 28, 28), []
    for device in ("cpu", "cuda"):
        network = large(device)
        with full_precision(torch.device(device)):
            max_gap(network, Box.around(x.to(device), 0.05)).sum().backward()
        gradients.append(next(iter(network.parameters())).grad.cpu())  # type: ignore[union-attr]
    assert torch.allclose(*gradients, rtol=1e-3, atol=1e-3 * float(gradients[0].abs().max()))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_training_resumes_and_is_evaluated(precision: str, data: Path, tmp_path: Path) -> None:
    machine = Machine(device="cuda", checkpoint_minutes=0)
    run = train(bars(precision=precision), tmp_path / "run", data, machine)
    assert run.finished()
    trained = Run(tmp_path / "run").load()
    assert all(weight.isfinite().all() for weight in trained.network.parameters())
    plan = Plan("quick", attacked=20, batch=20)
    contest = Contest(tmp_path / "scores", data, plan, (), ("specks",), None, torch.device("cuda"), Silent())
    (scores,) = contest.run([tmp_path / "run"])
    columns = scores.file(0.1, "specks").read()
    attacked = ~np.isnan(columns.adversarial)
    assert attacked.sum() == 20
    assert (columns.score[attacked] <= columns.adversarial[attacked]).all()
    assert (columns.adversarial[attacked] <= columns.certified[attacked]).all()
