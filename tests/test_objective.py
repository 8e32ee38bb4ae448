"""A step: parts and passes are one batch; networks with batch norm, residuals and many classes train with bounds."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from certood import networks
from certood.detectors import Softmax
from certood.errors import RecipeError
from certood.methods import ACET, CEDA, GOOD, OE, Method, Plain
from certood.normalisation import BatchNorms
from certood.objective import Step
from certood.recipes import recipe
from certood.training import train

CPU = Fabric(accelerator="cpu", devices=1)
SMALL = recipe("demo")


def step_of(network: nn.Module, method: Method, parts: int = 1) -> Step:
    return Step(CPU, SMALL, method, network, torch.optim.SGD(network.parameters(), 0.05), parts)


def batch(samples: int = 12, channels: int = 1, size: int = 28, classes: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, x_out = (torch.rand(samples, channels, size, size, generator=generator) for _ in range(2))
    return x, torch.randint(classes, (samples,), generator=generator), x_out


def weights_after(method: Method, parts: int, steps: int = 3) -> Tensor:
    torch.manual_seed(0)
    network = networks.build("XS", 1, 28, 10)
    optimise = step_of(network, method, parts)
    for number in range(steps):
        optimise(number, *batch(), 0.5, 0.02)
    return torch.cat([weight.detach().flatten() for weight in network.parameters()])


@pytest.mark.parametrize("method", [Plain(), OE(), CEDA(), ACET(3), GOOD(0.0), GOOD(0.4), GOOD(0.8), GOOD(1.0)])
@pytest.mark.parametrize("parts", [2, 3, 12])
def test_parts_change_the_weights_as_the_batch_does(method: Method, parts: int) -> None:
    whole, taken = weights_after(method, 1), weights_after(method, parts)
    assert torch.allclose(whole, taken, atol=1e-6)
    assert not torch.equal(whole, weights_after(method, 1, steps=2))


def test_the_quantile_is_that_of_all_parts() -> None:
    """Bounds of one part are all below those of the other: the quantile of each alone would be another one."""
    torch.manual_seed(0)
    network = networks.build("XS", 1, 28, 10)
    x, labels, x_out = batch()
    x_out[::2] *= 0.01  # the first of two parts: nearly black
    losses = {}
    for parts in (1, 2):
        dealt = step_of(network, GOOD(0.5), parts)
        dealt.optimiser.param_groups[0]["lr"] = 0.0
        found = [each.loss_out for each, _ in dealt(0, x, labels, x_out, 1.0, 0.05)]
        losses[parts] = torch.cat([loss for loss in found if loss is not None]).sort().values
    assert torch.allclose(losses[1], losses[2], atol=1e-5)


# ---- batch norm ------------------------------------------------------------------------------------------------------


def test_statistics_are_of_in_and_out_images_and_bounds_use_the_same() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 26 * 26, 10))
    x, labels, x_out = batch()
    x_out = 0.2 * x_out
    reference = nn.Sequential(*network)
    conv, norm = reference[0](torch.cat([x, x_out])), reference[1]
    variance, mean = torch.var_mean(conv, dim=(0, 2, 3), correction=0)
    frozen = nn.BatchNorm2d(4).eval()
    frozen.load_state_dict(norm.state_dict() | {"running_mean": mean, "running_var": variance})
    fixed = nn.Sequential(network[0], frozen, *network[2:])
    expected = GOOD(1.0).out_loss(Softmax(fixed), x_out, 0.01)
    (found, _), *_ = step_of(network, GOOD(1.0))(0, x, labels, x_out, 1.0, 0.01)
    assert found.loss_out is not None
    assert torch.allclose(found.loss_out, expected.detach(), rtol=1e-4)
    assert torch.allclose(norm.running_mean, 0.1 * mean.detach(), atol=1e-6)  # once a step


@pytest.mark.parametrize("method", [Plain(), OE(), ACET(2), GOOD(0.5), GOOD(1.0)])
def test_a_residual_network_trains_with_every_method_and_comes_back_folded(method: Method, tmp_path: Path) -> None:
    name = type(method).__name__.lower()
    quantile = method.quantile if isinstance(method, GOOD) else 1.0
    chosen = replace(
        recipe("demo", name, epochs=1), network="R18", in_limit=16, out_limit=16, batch_size=8, quantile=quantile,
        attack_steps=2, eps=1e-3, eps_start=0, eps_ramp=0, kappa=1e-3, kappa_start=0, kappa_ramp=0, lr=1e-4,
    )  # fmt: skip
    if name == "good":
        trained = train(chosen, tmp_path / "run").load()
        assert not BatchNorms(trained.network)
        assert trained.network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    network = networks.build("R18", 1, 28, 10)
    before = [weight.detach().clone() for weight in network.parameters()]
    (losses, _), *_ = step_of(network, method)(0, *batch(4), 1e-3, 1e-3)
    assert losses.loss_in.isfinite().all()
    assert all(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_batch_norm_needs_the_whole_batch() -> None:
    with pytest.raises(RecipeError, match="by one process and without --accumulate"):
        step_of(networks.build("R18", 1, 28, 10), Plain(), parts=2)


WIDE = """
import json, resource, torch
from lightning_fabric import Fabric
from certood import networks
from certood.methods import GOOD
from certood.objective import Step
from certood.recipes import recipe

network = networks.build("R18x2", 3, 32, 1000)
optimise = Step(Fabric(accelerator="cpu", devices=1), recipe("demo"), GOOD(1.0), network,
                torch.optim.Adam(network.parameters(), 1e-4), 1)
losses = []
for step in range(3):
    x, x_out, labels = torch.rand(4, 3, 32, 32), torch.rand(4, 3, 32, 32), torch.randint(1000, (4,))
    (found, _), *_ = optimise(step, x, labels, x_out, 0.1, 1e-4)
    losses.append(float(found.loss_in.mean() + found.loss_out.mean()))
print(json.dumps({"losses": losses, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
                  "weights": sum(weight.numel() for weight in network.parameters())}))
"""


@pytest.mark.slow
def test_a_wide_residual_network_with_a_thousand_classes_trains_within_8_gb() -> None:
    run = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["weights"] > 40e6
    assert all(loss == loss and loss < 1e9 for loss in found["losses"])
    assert found["peak"] < 8
