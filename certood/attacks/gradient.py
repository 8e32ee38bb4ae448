"""Attacks by gradient, one visible loop each. What they propose the `Hunt` projects, evaluates and keeps if it is best.

A loop works on the samples that are still open: its state is compacted as they settle, so their number is what an
iteration costs. A sample whose gradient is exactly zero and that has no momentum can never move again, and leaves.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Self, final

import torch
from torch import Tensor

from certood.attacks.hunt import Hunt, spread, still


class Attack(ABC):
    """A frozen dataclass of settings: from which start to search, and how."""

    start: str  # a name of `starts.STARTS`, "best" (what has been found so far) or "transfer" (from elsewhere)

    @abstractmethod
    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        """Look around from `points`, one for each of `rows`; the hunt remembers."""


@dataclass
class Path:
    """Where each sample of a loop is. All fields go by sample, so that what is settled can be left out."""

    rows: Tensor  # of the hunt  # [n]
    x: Tensor  # [n, ...]
    value: Tensor  # [n]
    slope: Tensor  # [n, ...]
    step: Tensor  # [n]

    def select(self, keep: Tensor) -> Self:
        if bool(keep.all()):
            return self
        return replace(self, **{field.name: getattr(self, field.name)[keep] for field in fields(self)})

    def climb(self, hunt: Hunt, ahead: Tensor, last: bool) -> tuple[Self, Tensor]:
        """Go where the score is higher than here, and nowhere else: only there is a gradient worth its price."""
        look = hunt.look(self.rows, ahead, gradient=False)
        up = look.values > self.value  # [n] bool
        x, value, slope = self.x.clone(), torch.where(up, look.values, self.value), self.slope.clone()
        x[up] = look.points[up]
        if not last and bool(up.any()):
            slope[up] = hunt.look(self.rows[up], x[up]).gradients
        return replace(self, x=x, value=value, slope=slope), up


@final
@dataclass(frozen=True)
class SignAscent(Attack):
    """PGD (Madry et al. 2018): x <- project(x + step * sign(grad)); the default step crosses the box once.

    40 steps of 2 eps / 41 are the paper's attack inside ACET.
    """

    start: str = "clean"
    steps: int = 40
    step: float | None = None

    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        for step in range(self.steps + 1):
            look = hunt.look(rows, points, gradient=step < self.steps)
            if step == self.steps:
                return
            moving = hunt.open[rows] & ~still(look.gradients)
            if not moving.any():
                return
            rows, points, slope = rows[moving], look.points[moving], look.gradients[moving]
            stride = spread(hunt.widest(rows) / (self.steps + 1), slope) if self.step is None else self.step
            points = points + stride * slope.sign()


@dataclass
class _AutoPath(Path):
    before: Tensor  # the point before x  # [n, ...]
    top: Tensor  # the best of this path, its value and its gradient
    top_value: Tensor
    top_slope: Tensor
    peak: Tensor  # top_value at the last checkpoint
    halved: Tensor  # at the last checkpoint?
    rises: Tensor  # steps that went up since then


@final
@dataclass(frozen=True)
class AutoPGD(Attack):
    """Auto-PGD (Croce and Hein 2020, algorithm 1): momentum, and steps that are halved when they stop paying.

    Steps begin at 2 eps. At checkpoints, that come at 22 % of the steps and then ever more often, a step is halved and
    the search goes back to its best point if fewer than `rho` of the steps went up, or if neither step nor best value
    have changed since the last one. The score is in log-odds, which do not saturate.
    """

    start: str = "near"
    steps: int = 100
    rho: float = 0.75
    momentum: float = 0.75  # alpha of the paper: the share of the new direction

    def checkpoints(self) -> dict[int, int]:
        """Step of each checkpoint -> steps since the one before: 22 %, then 3 % less each time, at least 6 %."""
        found: dict[int, int] = {}
        share, gap, last = 0.22, 0.22, 0
        while share < 1:
            step = math.ceil(round(share * self.steps, 6))
            if step > last:
                found[step], last = step - last, step
            gap = max(gap - 0.03, 0.06)
            share += gap
        return found

    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        x, value, slope = hunt.look(rows, points)
        path = _AutoPath(
            rows, x, value, slope, hunt.widest(rows), before=x, top=x, top_value=value, top_slope=slope,
            peak=value, halved=torch.zeros_like(value, dtype=torch.bool), rises=torch.zeros_like(value),
        )  # fmt: skip
        checkpoints = self.checkpoints()
        for step in range(1, self.steps + 1):
            stuck = still(path.slope) & still(path.x - path.before) & still(path.top_slope)
            path = path.select(hunt.open[path.rows] & ~stuck)
            if not len(path.rows):
                return
            box = hunt.box.select(path.rows)
            ahead = box.project(path.x + spread(path.step, path.x) * path.slope.sign())
            share = 1.0 if step == 1 else self.momentum
            ahead = path.x + share * (ahead - path.x) + (1 - share) * (path.x - path.before)
            look = hunt.look(path.rows, ahead, gradient=step < self.steps)
            if step == self.steps:
                return
            path.rises = path.rises + (look.values > path.value)
            path.before, (path.x, path.value, path.slope) = path.x, look
            better = path.value > path.top_value
            wide = spread(better, path.x).bool()
            path.top = torch.where(wide, path.x, path.top)
            path.top_value = torch.where(better, path.value, path.top_value)
            path.top_slope = torch.where(wide, path.slope, path.top_slope)
            if step in checkpoints:
                path = self._checkpoint(path, checkpoints[step])

    def _checkpoint(self, path: _AutoPath, steps: int) -> _AutoPath:
        back = (path.rises < self.rho * steps) | (~path.halved & (path.top_value <= path.peak))
        wide = spread(back, path.x).bool()
        return replace(
            path,
            step=torch.where(back, path.step / 2, path.step),
            x=torch.where(wide, path.top, path.x),
            before=torch.where(wide, path.top, path.before),
            value=torch.where(back, path.top_value, path.value),
            slope=torch.where(wide, path.top_slope, path.slope),
            peak=path.top_value,
            halved=back,
            rises=torch.zeros_like(path.rises),
        )


@dataclass
class _MonotonePath(Path):
    velocity: Tensor  # [n, ...]


@final
@dataclass(frozen=True)
class MonotonePGD(Attack):
    """The paper's attack for flat models (appendix on attacks): go back and halve the step whenever a step does not go
    up, make it 1.1 times longer whenever it does; momentum 0.9. It never steps into a region without gradients.

    The first step is 0.1, or a third of eps where that is less.
    """

    start: str = "contrast"
    steps: int = 200
    step: float = 0.1
    momentum: float = 0.9

    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        x, value, slope = hunt.look(rows, points)
        first = (hunt.widest(rows) / 6).clamp(max=self.step)
        path = _MonotonePath(rows, x, value, slope, first, torch.zeros_like(x))
        for step in range(1, self.steps + 1):
            path = path.select(hunt.open[path.rows] & ~still(path.slope) & (path.step > SHORTEST))
            if not len(path.rows):
                return
            size = path.slope.abs().flatten(1).mean(1).clamp(min=torch.finfo(path.slope.dtype).tiny)
            velocity = self.momentum * path.velocity + path.slope / spread(size, path.slope)
            ahead = path.x + spread(path.step, path.x) * velocity.sign()
            path, up = path.climb(hunt, ahead, last=step == self.steps)
            path.velocity = torch.where(spread(up, velocity).bool(), velocity, 0)  # a failure: the gradient alone
            path.step = torch.where(up, path.step * 1.1, path.step / 2)


SHORTEST = 1e-6  # a step below this changes no pixel by as much as float32 rounds the sums of a network
