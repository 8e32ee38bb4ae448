"""Batch norm: frozen for bounds in training, folded for certification, and never a different function for it."""

import pytest
import torch
from torch import nn

from certood.bounds import Box
from certood.errors import UnsupportedOperation
from certood.normalisation import BatchNorms, at_rest, folded
from certood.residual import build


def normalised(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 5),
    )  # fmt: skip


def test_frozen_statistics_are_those_of_the_clean_pass() -> None:
    network, x = normalised(), torch.rand(12, 2, 8, 8)
    norms = BatchNorms(network)
    with norms.measuring():
        answers = network(x)
    with norms.frozen():
        assert torch.allclose(network(x), answers, atol=1e-5)
        alone = torch.cat([network(image[None]) for image in x])
        assert torch.allclose(alone, answers, atol=1e-5)
        eps = 0.01
        out = network(Box.around(x, eps))
        for _ in range(20):
            inside = network((x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1))
            assert ((out.lower - 1e-5 <= inside) & (inside <= out.upper + 1e-5)).all()
    with pytest.raises(UnsupportedOperation, match="training mode"):  # as before
        network(Box.around(x, 0.01))


def test_freezing_leaves_the_running_statistics_and_the_mode_alone() -> None:
    network, x = normalised(), torch.rand(12, 2, 8, 8)
    norms = BatchNorms(network)
    with norms.measuring():
        network(x)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with norms.frozen():
        network(Box.around(x, 0.01))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(module.training for module in network.modules())
    with at_rest(network):
        assert not any(module.training for module in network.modules())
    assert all(module.training for module in network.modules())


def lived_in(network: nn.Module, channels: int, size: int) -> nn.Module:
    """Weights and statistics that no initialisation has."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, -1.5, 1.5)
            nn.init.normal_(module.bias)
    for _ in range(5):
        network(torch.rand(8, channels, size, size))
    return network.eval().requires_grad_(False)


@pytest.mark.parametrize("seed", range(3))
def test_a_folded_network_is_the_same_function(seed: int) -> None:
    torch.manual_seed(seed)
    for network, channels, size in ((normalised(seed), 2, 8), (build(3, 7), 3, 16)):
        x = torch.rand(4, channels, size, size)
        expected = lived_in(network, channels, size)(x)
        without = folded(network)
        assert not BatchNorms(without)
        assert torch.allclose(without(x), expected, atol=1e-4, rtol=1e-4)
        box, wider = without(Box.around(x, 0.001)), network(Box.around(x, 0.001))
        width, wide = (box.upper - box.lower).mean(), (wider.upper - wider.lower).mean()
        assert float(width) == pytest.approx(float(wide), rel=1e-3)  # an affine map either way


def test_batch_norm_that_follows_no_convolution_stays() -> None:
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    x = torch.rand(2, 1, 2, 2)
    assert len(BatchNorms(folded(network)).found) == 1
    assert torch.equal(folded(network)(x), network(x))
    plain = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    assert folded(plain) is plain
