"""A detector whose worst case is known exactly, one that has hills to climb, and images to try them on."""

import hashlib
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from certood.boxes import Box
from certood.data.sources import ImageSet
from certood.detectors import Detector, Softmax

SHAPE = (1, 4, 4)


@final
class Linear(Detector):
    """Logits (a, 0) with a = w . x + b > 0: the score is a, and largest over a box where every z_i follows w_i.

    `wrong` is added to the bound, for all images or one by one.
    """

    def __init__(self, seed: int = 0, wrong: float | Tensor = 0.0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(SHAPE, generator=draw, dtype=torch.float64)
        self.bias = self.weight.abs().sum()
        self.wrong = wrong

    def log_probs(self, x: Tensor) -> Tensor:
        top = (x.double() * self.weight).flatten(1).sum(1) + self.bias
        return torch.stack([top, torch.zeros_like(top)], 1).log_softmax(1)

    def score_upper(self, box: Box) -> Tensor:
        worst = torch.where(self.weight > 0, box.upper.double(), box.lower.double())
        return self.score(worst) + self.wrong


def hills(seed: int) -> Softmax:
    """A small network with random weights: attacks end in different places, and begin in others when told where."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
    with torch.no_grad():
        network[1].weight.mul_(4)
    return Softmax(network.requires_grad_(False))


def image_set(count: int = 11, seed: int = 0, name: str = "made_up") -> ImageSet:
    """Random images with labels 0 and 1 in turn."""
    stored = np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), np.uint8)
    digest = hashlib.sha256(stored.tobytes()).hexdigest()
    return ImageSet(name, "test", SHAPE, 2, ("a", "b"), digest, count, lambda rows: stored[rows], np.arange(count) % 2)
