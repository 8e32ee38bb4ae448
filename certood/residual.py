"""ResNet-18 (He et al. 2016) as it is used for images of 32 pixels: no pooling before the last, 3x3 at the entrance."""

import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)
BLOCKS = 2  # of each width, two convolutions each


class Block(nn.Module):
    """relu(x + f(x)), where f is two convolutions with batch norm; where the shape changes, x is projected."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(out)) + self.shortcut(x))


def build(channels: int, classes: int, widening: int = 1) -> nn.Sequential:
    """
    >>> sum(weight.numel() for weight in build(3, 10).parameters())
    11173962
    """
    first = WIDTHS[0] * widening
    layers: list[nn.Module] = [nn.Conv2d(channels, first, 3, 1, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
    before = first
    for number, width in enumerate(WIDTHS):
        for block in range(BLOCKS):
            layers.append(Block(before, width * widening, stride=2 if number and not block else 1))
            before = width * widening
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
