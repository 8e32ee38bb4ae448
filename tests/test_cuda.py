"""On a GPU everything runs as it does on the CPU, and nothing that is certified is computed in TF32."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from certood import discriminators, networks
from certood.attacks import Enough, maximise
from certood.bounds import Box, confidence_upper, full_precision, max_gap, plain_sums, score_lower, score_upper
from certood.contest import Contest
from certood.detectors import Joint, Softmax
from certood.discriminators import Discriminated
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


@pytest.fixture
def plainly() -> Iterator[None]:
    """As Guard and evaluation execute a network; torch's own settings on a GPU, TF32 among them, are refused."""
    with plain_sums(torch.device("cuda")):
        yield


@pytest.mark.parametrize("name", ["XS", "S"])
@pytest.mark.usefixtures("plainly")
def test_a_single_image_is_within_its_sound_bounds_however_it_is_batched(name: str) -> None:
    """eps = 0, on the GPU and on the CPU: both execute the network, and one bound holds for both."""
    torch.manual_seed(0)
    network, x = networks.build(name, channels=1, size=28, classes=10).requires_grad_(False), torch.rand(64, 1, 28, 28)
    executed, missed = [Softmax(network).score(x)], 0
    network, x = network.cuda(), x.cuda()
    box = Box(x, x.clone())
    upper, lower = score_upper(network, box, sound=True).cpu(), score_lower(network, box, sound=True).cpu()
    plain = score_upper(network, box).cpu()
    with plain_sums(torch.device("cuda")):
        for size in (1, 2, 3, 5, 8, 32, 64):
            for layout in (torch.contiguous_format, torch.channels_last):
                parts = [part.contiguous(memory_format=layout) for part in x.split(size)]
                executed.append(torch.cat([Softmax(network).score(part) for part in parts]).cpu())
    for scores in executed:
        assert (lower <= scores).all()
        assert (scores <= upper).all()
        missed += int((scores > plain).sum())
    assert missed > 0  # the same tests fail for the unsound bound
    assert (upper - lower).max() < 0.5


@pytest.mark.usefixtures("plainly")
def test_no_corner_exceeds_the_sound_bound_and_some_exceed_the_other() -> None:
    """Networks whose units are all active reach their bound at a corner of the box."""
    found = 0
    for seed in range(60):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 2)).requires_grad_(False)
        network[0].weight.abs_()
        network[0].bias.fill_(20.0)
        network[2].weight[0].abs_()
        network[2].weight[1].abs_().neg_()
        network, x = network.cuda(), torch.rand(32, 784, device="cuda")
        box = Box.around(x, (1e-6, 1e-4, 0.01)[seed % 3])
        sound, plain = score_upper(network, box, sound=True), score_upper(network, box)
        with plain_sums(torch.device("cuda")):
            for size in (1, 5, 32):
                best = torch.cat([Softmax(network).score(part) for part in box.upper.split(size)])
                assert (best <= sound).all()
                found += int((best > plain).sum())
        assert (sound - best).max() < 0.05
    assert found > 0


@pytest.mark.usefixtures("plainly")
def test_sound_bounds_of_both_devices_agree() -> None:
    torch.manual_seed(0)
    network, x = networks.build("S", channels=1, size=28, classes=10), torch.rand(16, 1, 28, 28)
    for bound in (score_upper, confidence_upper):
        there = bound(network.cpu(), Box.around(x, 1e-4), sound=True).double()
        here = bound(network.cuda(), Box.around(x.cuda(), 1e-4), sound=True).cpu().double()
        assert torch.allclose(here, there, rtol=1e-5, atol=1e-5)
        assert there.max() < 1


def test_an_attack_stays_below_the_sound_bound() -> None:
    network = large("cuda").requires_grad_(False)
    detector, images = Softmax(network, sound=True), torch.rand(100, 1, 28, 28, device="cuda")
    for eps in (1e-4, 0.01):
        box = Box.around(images, eps)
        with plain_sums(images.device):
            upper = detector.score_upper(box)
            assert (maximise(detector.score, box, images, budget="standard").scores <= upper).all()


def test_a_discriminators_sound_bound_holds() -> None:
    torch.manual_seed(0)
    parts = networks.build("S", 1, 28, 10), discriminators.build("DL", 1, 28)
    detector = Joint(Discriminated(*parts, classes=10).cuda().requires_grad_(False), sound=True)
    images = torch.rand(100, 1, 28, 28, device="cuda")
    box = Box.around(images, 0.01)
    with plain_sums(images.device):
        assert (maximise(detector.score, box, images, budget="quick").scores <= detector.score_upper(box)).all()
