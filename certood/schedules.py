"""How kappa, eps and the learning rate move with time, counted in epochs from 0.

The paper's schedules are constant inside an epoch: they are asked at whole epochs. Short trainings ask at every step.
"""

import math
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Ramp:
    """value * min(max(t - start, 0) / length, 1); with length 0 a step at `start`.

    >>> Ramp(0.3, start=2, length=100)(52)
    0.15
    """

    value: float
    start: float = 0.0
    length: float = 0.0

    def __call__(self, epoch: float) -> float:
        if self.length == 0:
            return self.value if epoch >= self.start else 0.0
        return self.value * min(max(epoch - self.start, 0.0) / self.length, 1.0)


@final
@dataclass(frozen=True)
class Steps:
    """value * factor^(milestones passed): the paper's learning rates, factor 0.2."""

    value: float
    milestones: tuple[float, ...]
    factor: float = 0.2

    def __call__(self, epoch: float) -> float:
        return self.value * self.factor ** sum(epoch >= milestone for milestone in self.milestones)


@final
@dataclass(frozen=True)
class Cosine:
    """From value to 0 along half a cosine over `epochs`, after a linear warm-up."""

    value: float
    epochs: float
    warmup: float = 0.0

    def __call__(self, epoch: float) -> float:
        if epoch < self.warmup:
            return self.value * epoch / self.warmup
        progress = (epoch - self.warmup) / max(self.epochs - self.warmup, 1e-9)
        return self.value * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


Schedule = Ramp | Steps | Cosine
