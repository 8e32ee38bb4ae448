"""The paper's networks, layer by layer, and what cannot be built."""

import pytest
import torch
from torch import nn

from certood import networks
from certood.bounds import Box, confidence_upper
from certood.errors import NetworkError


def described(network: nn.Sequential) -> list[str]:
    words = []
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            assert layer.kernel_size == (3, 3)
            assert layer.padding == (1, 1)
            words.append(f"conv {layer.out_channels}/{layer.stride[0]}")
        elif isinstance(layer, nn.Linear):
            words.append(f"linear {layer.out_features}")
        else:
            words.append(type(layer).__name__)
    return words


# The paper's table of architectures: a ReLU after each layer but the last, no pooling, no normalisation.
PAPER = {
    "L": ["conv 64/1", "conv 64/1", "conv 128/2", "conv 128/1", "conv 128/1", "linear 512", "linear 10"],
    "XL": [
        "conv 128/1",
        "conv 128/1",
        "conv 256/2",
        "conv 256/1",
        "conv 256/1",
        "linear 512",
        "linear 512",
        "linear 10",
    ],
}


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_s_networks_layer_by_layer(name: str) -> None:
    with torch.device("meta"):
        found = described(networks.build(name, channels=3, size=32, classes=10))
    expected = []
    for layer in PAPER[name]:
        if layer == "linear 512" and "Flatten" not in expected:
            expected.append("Flatten")
        expected += [layer, "ReLU"]
    assert found == expected[:-1]


def test_weights_for_bounds_keep_the_width_of_a_box() -> None:
    """From layer to layer, where PyTorch's own let it grow about sixfold."""
    torch.manual_seed(0)
    box, growth = Box.around(torch.rand(16, 1, 28, 28), 0.01), {}
    for drawn in ("pytorch", "ibp"):
        network = networks.build("L", channels=1, size=28, classes=10)
        if drawn == "ibp":
            networks.draw_for_bounds(network)
        widths = [float(part(box).radius.detach().mean()) for part in (network[:2], network[:10])]  # layers 1 and 5
        growth[drawn] = (widths[1] / widths[0]) ** 0.25
    assert 0.7 < growth["ibp"] < 1.4
    assert growth["pytorch"] > 4


@pytest.mark.parametrize(
    ("name", "channels", "size", "parameters"),
    [("L", 1, 28, 13_257_290), ("L", 3, 32, 17_190_602), ("XL", 3, 32, 35_449_226)],
)
def test_their_size(name: str, channels: int, size: int, parameters: int) -> None:
    """By hand: 3x3 kernels and biases, then (size / 2)^2 * width * 512 + 512, and so on."""
    first, wide = (64, 128) if name == "L" else (128, 256)
    convolutions = [(channels, first), (first, first), (first, wide), (wide, wide), (wide, wide)]
    hidden = [(wide * (size // 2) ** 2, 512), *([(512, 512)] if name == "XL" else []), (512, 10)]
    by_hand = sum(9 * one * two + two for one, two in convolutions) + sum(one * two + two for one, two in hidden)
    with torch.device("meta"):
        network = networks.build(name, channels, size, 10)
    assert sum(value.numel() for value in network.parameters()) == by_hand == parameters


@pytest.mark.parametrize("name", networks.ARCHITECTURES)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (2, 9), (1, 4)])
def test_any_size_answers_with_logits(name: str, channels: int, size: int) -> None:
    with torch.device("meta"):
        network = networks.build(name, channels, size, classes=7)
        assert network(torch.rand(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize("name", ["XS", "S"])
def test_their_bounds_end_in_an_elided_layer(name: str) -> None:
    network, x = networks.build(name, 1, 8, 3), torch.rand(2, 1, 8, 8)
    assert network(Box.around(x, 0.01)).source is not None
    with torch.no_grad():
        confidence = network(x).softmax(1).amax(1)
    assert (confidence_upper(network, Box.around(x, 0.01)) >= confidence).all()


def test_weights_come_from_the_seed() -> None:
    one, two = (networks_of_seed(7) for _ in range(2))
    for left, right in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(left, right)


def networks_of_seed(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return networks.build("XS", 1, 8, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("M5", 1, 28, 10), "no network is called 'M5'; there are L, XL"),
        (("L", 0, 28, 10), "channels >= 1"),
        (("L", 1, 3, 10), "size >= 4"),
        (("L", 1, 28, 1), "classes >= 2"),
    ],
)
def test_what_cannot_be_built(arguments: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        networks.build(*arguments)
    assert "\n" not in str(caught.value)
