"""The networks: plain stacks of 3x3 convolutions, then linear layers, ReLU between them and no normalisation.

L and XL are the paper's (Table 2). S and M are for two CPU cores, XS for the demo. R18 is ResNet-18 with batch norm,
R18x2 the same twice as wide. Any other `nn.Module` that ends in
logits works as well: bounds do not know these classes.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn

from certood import residual
from certood.errors import NetworkError


@dataclass(frozen=True)
class Architecture:
    convolutions: tuple[tuple[int, int], ...]  # (channels, stride) of each, 3x3 with padding 1
    hidden: tuple[int, ...]  # widths of the linear layers before the logits


ARCHITECTURES = {
    "L": Architecture(((64, 1), (64, 1), (128, 2), (128, 1), (128, 1)), (512,)),
    "XL": Architecture(((128, 1), (128, 1), (256, 2), (256, 1), (256, 1)), (512, 512)),
    "M": Architecture(((32, 1), (32, 1), (64, 2), (64, 1), (64, 1)), (256,)),
    "S": Architecture(((32, 2), (32, 1), (64, 2), (64, 1)), (256,)),
    "XS": Architecture(((16, 2), (32, 2), (32, 1)), (64,)),
}
WIDENINGS = {"R18": 1, "R18x2": 2}  # of the residual network


def build(name: str, channels: int, size: int, classes: int) -> nn.Sequential:
    """A network for images of `channels` x `size` x `size`, layers in the paper's order, PyTorch's initialisation.

    >>> sum(weight.numel() for weight in build("L", channels=1, size=28, classes=10).parameters())
    13257290
    """
    if name not in (*ARCHITECTURES, *WIDENINGS):
        raise NetworkError(f"no network is called {name!r}; there are {', '.join((*ARCHITECTURES, *WIDENINGS))}")
    if channels < 1 or size < 4 or classes < 2:
        raise NetworkError(f"a network needs channels >= 1, size >= 4, classes >= 2, not {channels}, {size}, {classes}")
    if name in WIDENINGS:
        return residual.build(channels, classes, WIDENINGS[name])
    layers, features = stack(ARCHITECTURES[name], channels, size)
    return nn.Sequential(*layers, nn.Linear(features, classes))


def stack(architecture: Architecture, channels: int, size: int, pool: int = 1) -> tuple[list[nn.Module], int]:
    """All layers before the last, and how many features they give; `pool` averages after the convolutions."""
    layers: list[nn.Module] = []
    for width, stride in architecture.convolutions:
        layers += [nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1), nn.ReLU()]
        channels, size = width, (size - 1) // stride + 1
    if pool > 1:
        layers.append(nn.AvgPool2d(pool))
        size //= pool
    layers.append(nn.Flatten())
    features = channels * size * size
    for width in architecture.hidden:
        layers += [nn.Linear(features, width), nn.ReLU()]
        features = width
    return layers, features


@torch.no_grad()
def draw_for_bounds(network: nn.Module) -> None:
    """Weights from N(0, 2 pi / n^2), n the inputs of a sum, biases 0: the width of a box then neither grows nor shrinks
    from layer to layer (Shi et al. 2021, Fast Certified Robust Training with Short Warmup, section 3.1)."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.weight.normal_(0, math.sqrt(2 * math.pi) / layer.weight[0].numel())
            if layer.bias is not None:
                layer.bias.zero_()
