"""ProoD's two parts (Meinke, Bitterwolf, Hein 2022): a small network that tells in from out and can be certified, and
the classifier behind it, which may be of any kind:

    p(y|x) = p_cls(y|x) p(i|x) + (1 - p(i|x)) / K,    p(i|x) = sigmoid(g(x))
"""

import math
from typing import Any, cast, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certood.errors import NetworkError
from certood.networks import Architecture, stack

DISCRIMINATORS = {
    "D": Architecture(((128, 1), (256, 2), (256, 1)), (128,)),  # as published
    "DS": Architecture(((32, 2), (32, 1), (64, 1)), (64,)),  # for two CPU cores
    "DL": Architecture(((32, 2), (32, 1), (64, 1)), (64,)),  # DS with an ordinary last layer
}
ORDINARY = ("DL",)
"""Whose last weights have any sign: nothing is known of images far outside [0, 1], and more of those within."""

# The largest g before training: p(i|x) can be 0.95 at once, where a bias near 0 would take long to get there.
SURE = 3.0


@final
class NegativeLinear(nn.Module):
    """g = b - sum_i exp(w_i) z_i. With z >= 0 it never exceeds b: no image, however far away, is surely inside."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.log_weight = nn.Parameter(torch.empty(1, features))
        self.bias = nn.Parameter(torch.empty(1))
        spread = 1 / math.sqrt(features)
        nn.init.uniform_(self.log_weight, math.log(spread) - spread, math.log(spread) + spread)
        nn.init.constant_(self.bias, SURE)

    def forward(self, z: Any) -> Any:
        return F.linear(z, -self.log_weight.exp(), self.bias)


def build(name: str, channels: int, size: int) -> nn.Sequential:
    """Answers with two logits, g and 0: a network of two classes, inside and outside.

    >>> build("DS", channels=1, size=28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 2])
    """
    if name not in DISCRIMINATORS:
        raise NetworkError(f"no discriminator is called {name!r}; there are {', '.join(DISCRIMINATORS)}")
    layers, features = stack(DISCRIMINATORS[name], channels, size, pool=2)
    last = nn.Linear(features, 1) if name in ORDINARY else NegativeLinear(features)
    return nn.Sequential(*layers, last, nn.ConstantPad1d((0, 1), 0.0))


@final
class Discriminated(nn.Module):
    """Answers with log p(y|x), in float64."""

    def __init__(self, classifier: nn.Module, discriminator: nn.Module, classes: int) -> None:
        super().__init__()
        self.classifier, self.discriminator, self.classes = classifier, discriminator, classes

    def forward(self, x: Tensor) -> Tensor:
        classes = self.classifier(x).double().log_softmax(1)  # [N, K]
        inside, outside = self.discriminator(x).double().log_softmax(1).split(1, dim=1)  # [N, 1] each
        return torch.logaddexp(classes + inside, outside - math.log(self.classes))

    @torch.no_grad()
    def fix(self, shift: float) -> None:
        """The discriminator is trained: it says inside more readily from now on, and learns no more."""
        *_, last, _ = self.discriminator.children()
        cast(nn.Linear | NegativeLinear, last).bias.add_(shift)
        self.discriminator.requires_grad_(False)
