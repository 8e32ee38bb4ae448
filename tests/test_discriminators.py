"""ProoD's discriminator and the classifier behind it."""

import pytest
import torch
from strategies import assert_sound, generator
from torch import nn

from certood import discriminators, networks
from certood.bounds import Box, logit_gaps
from certood.detectors import Softmax
from certood.discriminators import DISCRIMINATORS, Discriminated, NegativeLinear
from certood.errors import NetworkError
from certood.methods import Discriminator


@pytest.mark.parametrize("name", DISCRIMINATORS)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 8)])
def test_two_logits_of_which_one_is_zero(name: str, channels: int, size: int) -> None:
    network = discriminators.build(name, channels, size)
    logits = network(torch.rand(2, channels, size, size))
    assert logits.shape == (2, 2)
    assert (logits[:, 1] == 0).all()


def test_the_published_one_by_its_layers() -> None:
    """conv 128, conv 256 stride 2, conv 256, average pool 2, fc 128, fc 1."""
    layers = [type(layer).__name__ for layer in discriminators.build("D", 3, 32)]
    assert layers == [
        *["Conv2d", "ReLU"] * 3,
        "AvgPool2d",
        "Flatten",
        "Linear",
        "ReLU",
        "NegativeLinear",
        "ConstantPad1d",
    ]
    shapes = [tuple(weight.shape) for weight in discriminators.build("D", 3, 32).parameters() if weight.ndim > 1]
    assert shapes == [(128, 3, 3, 3), (256, 128, 3, 3), (256, 256, 3, 3), (128, 256 * 8 * 8), (1, 128)]


def test_no_image_however_far_exceeds_the_bias() -> None:
    network = discriminators.build("DS", 1, 8).double()
    bias = next(module.bias for module in network if isinstance(module, NegativeLinear))
    with torch.no_grad():
        for scale in (1, 1e2, 1e4):
            assert (network(scale * torch.randn(50, 1, 8, 8).double())[:, 0] <= bias).all()
        end = torch.full((1, 1, 8, 8), 1e4, dtype=torch.float64)
        assert float(network(Box(-end, end)).upper[0, 0]) == pytest.approx(float(bias), abs=1e-6)


@pytest.mark.parametrize("name", ["DS", "DL"])
@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3])
def test_bounds_hold(eps: float, name: str) -> None:
    network = discriminators.build(name, 1, 8).double()
    assert_sound(network, Box.around(torch.rand(3, 1, 8, 8, generator=generator(), dtype=torch.float64), eps))


@pytest.mark.parametrize("name", ["DS", "DL"])
def test_sound_bounds_are_known_for_every_layer(name: str) -> None:
    box = Box.around(torch.rand(3, 1, 28, 28), 0.01)
    network = discriminators.build(name, 1, 28)
    plain, sound = logit_gaps(network, box), logit_gaps(network, box, sound=True)
    assert sound.isfinite().all()
    assert (sound >= plain - 1e-6).all()
    assert torch.allclose(sound, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_probabilities_by_the_formula(name: str) -> None:
    torch.manual_seed(0)
    model = Discriminated(networks.build("XS", 1, 8, 4), discriminators.build(name, 1, 8), 4)
    x = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        inside = model.discriminator(x)[:, :1].double().sigmoid()
        classes = model.classifier(x).double().softmax(1)
        assert torch.allclose(model(x).exp(), classes * inside + (1 - inside) / 4)
        before = model.discriminator(x)[:, 0].clone()
        model.fix(3.0)
        assert torch.allclose(model.discriminator(x)[:, 0], before + 3)
        assert (model.discriminator(x)[:, 1] == 0).all()
    assert not any(weight.requires_grad for weight in model.discriminator.parameters())
    assert all(weight.requires_grad for weight in model.classifier.parameters())


def test_the_classifier_may_be_of_any_kind() -> None:
    """Its layers need no rules: batch norm in training mode would be refused."""
    from certood.detectors import Joint

    classifier = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 4), nn.Softsign())
    detector = Joint(Discriminated(classifier.train(), discriminators.build("DS", 1, 8), 4), sound=True)
    assert detector.score_upper(Box.around(torch.rand(3, 1, 8, 8), 0.01)).isfinite().all()


def test_an_unknown_one_is_named() -> None:
    with pytest.raises(NetworkError, match="no discriminator is called 'DX'; there are D, DS, DL"):
        discriminators.build("DX", 1, 28)


@pytest.mark.parametrize("name", ["DS", "DL"])
def test_it_learns_to_tell_in_from_out_and_to_guarantee_it(name: str) -> None:
    """Dark images from others, with a radius that rises as in a training."""
    torch.manual_seed(0)
    network = discriminators.build(name, 1, 8)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    method, draw = Discriminator(), generator()
    for step in range(150):
        inside, outside = torch.rand(32, 1, 8, 8, generator=draw) / 4, torch.rand(32, 1, 8, 8, generator=draw)
        detector, labels = Softmax(network), torch.zeros(32, dtype=torch.long)
        loss = method.in_loss(detector, inside, labels)[0].mean()
        loss = loss + method.out_loss(detector, outside, 0.1 * min(step / 50, 1)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        assert (network(inside)[:, 0] > 0).float().mean() > 0.95
        assert (network(Box.around(outside, 0.1)).upper[:, 0] < 0).float().mean() > 0.9
