"""A `Hunt` is the ledger of an attack: the one place where points are projected, evaluated and compared.

Attacks propose and the hunt disposes, so none of them can leave its box, claim a point that was not evaluated, or
return less than where it began. Rows are samples; what is settled is closed, and attacks go on with what is open.
"""

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from certood.boxes import Box

Score = Callable[[Tensor], Tensor]
Watch = Callable[[str, int], None]  # what is being tried, samples still open


class Look(NamedTuple):
    """Points as they were evaluated: inside the box."""

    points: Tensor  # [n, ...]
    values: Tensor  # [n] float64
    gradients: Tensor  # [n, ...]; empty where none were asked for


@final
class Enough:
    """When more search on a sample cannot matter: its certificate says so, alone or together with its rank.

    Where no more than `share` of the in-distribution scores lie between score and certified ceiling, the sample cannot
    move an AUC by more than `share` of its own weight: an adversarial AUC is off by at most that, 0.1 points. Without
    in-scores, a score within `tolerance` (log-odds) of its ceiling is as good as the worst case; with them it need not
    be, since many may lie within any tolerance, and all do where a training has collapsed.
    """

    def __init__(self, in_scores: Tensor | None = None, tolerance: float = 0.01, share: float = 0.001) -> None:
        self.in_scores = None if in_scores is None else in_scores.double().sort().values
        self.tolerance, self.share = tolerance, share

    def __call__(self, scores: Tensor, ceilings: Tensor) -> Tensor:
        """# [n], [n] -> [n] bool"""
        if self.in_scores is None:
            return ceilings - scores <= self.tolerance
        reach = torch.maximum(scores, ceilings)
        ties, above = (  # places in the ranking, with those that are tied now and without
            torch.searchsorted(self.in_scores, reach, right=right)
            - torch.searchsorted(self.in_scores, scores, right=right)
            for right in (False, True)
        )
        moved = torch.maximum(above, (ties + above) / 2)  # of the conservative AUC, and of the one that halves ties
        return moved <= self.share * len(self.in_scores)


@final
class Hunt:
    """What has been found for each row of `box`, at what cost, and which rows are still worth a search."""

    def __init__(
        self,
        score: Score,
        box: Box,
        x: Tensor,
        ceiling: Tensor | None = None,
        enough: Enough | None = None,
        watch: Watch | None = None,
    ) -> None:
        count = len(box)
        self.score, self.box, self.x, self.enough, self.watch = score, box, x, enough, watch
        self.ceiling = x.new_full((count,), torch.inf, dtype=torch.float64) if ceiling is None else ceiling.double()
        self.points = box.project(x).detach().clone()
        self.scores = x.new_full((count,), -torch.inf, dtype=torch.float64)
        self.gradients = torch.zeros(count, dtype=torch.int64, device=x.device)  # evaluations of the gradient
        self.evaluations = torch.zeros_like(self.gradients)  # of the score, with a gradient or without
        self.open = torch.ones(count, dtype=torch.bool, device=x.device)
        self.names: list[str] = []
        self.winner = torch.zeros_like(self.gradients)  # which of the names found the best point
        self.attack = ""

    def resume(
        self, points: Tensor, scores: Tensor, attacks: tuple[str, ...], gradients: Tensor, evaluations: Tensor
    ) -> None:
        """Start from what an earlier hunt in the same box ended with."""
        self.points, self.scores = points.clone(), scores.clone()
        self.gradients, self.evaluations = gradients.clone(), evaluations.clone()
        self.names = list(dict.fromkeys(attacks))
        self.winner = torch.tensor([self.names.index(name) for name in attacks], device=scores.device)
        self._close(torch.arange(len(scores), device=scores.device))

    def winners(self) -> tuple[str, ...]:
        """Which attack found the best point of each row."""
        return tuple(self.names[number] for number in self.winner.tolist())

    def begin(self, attack: str) -> Tensor:
        """Name who searches next; the rows that are open.  # [n]"""
        self.attack = attack
        if attack not in self.names:
            self.names.append(attack)
        return self.open.nonzero().squeeze(1)

    def look(self, rows: Tensor, points: Tensor, gradient: bool = True) -> Look:
        """Evaluate points of these rows, with the gradient of the score there, and remember the best."""
        if self.watch is not None:
            self.watch(self.attack, int(self.open.sum()))
        points = self.box.select(rows).project(points.detach())
        slopes = points.new_empty(0)
        with torch.set_grad_enabled(gradient):
            points.requires_grad_(gradient)
            values = self.score(points.clone()).double()  # a network may change its input in place  # [n]
            if gradient:
                slopes = torch.zeros_like(points)
                if values.requires_grad:  # a score may not depend on its input in a way that has a derivative
                    (slopes,) = torch.autograd.grad(values.sum(), points)
                self.gradients[rows] += 1
        self.evaluations[rows] += 1
        points, values = points.detach(), values.detach()
        better = values > self.scores[rows]  # never where it is NaN
        won = rows[better]
        self.points[won], self.scores[won] = points[better], values[better]
        self.winner[won] = self.names.index(self.attack)
        self._close(rows)
        return Look(points, values, slopes)

    def _close(self, rows: Tensor) -> None:
        if self.enough is not None:
            self.open[rows] = ~self.enough(self.scores[rows], self.ceiling[rows])

    def widest(self, rows: Tensor) -> Tensor:
        """The longest side of each row's box: 2 eps unless all of it was cut to [0, 1].  # [n]"""
        box = self.box.select(rows)
        return (box.upper - box.lower).flatten(1).amax(1)


def spread(values: Tensor, like: Tensor) -> Tensor:
    """One number a sample, in a form that multiplies images.  # [n] -> [n, 1, ...]"""
    return values.to(like.dtype).reshape(-1, *[1] * (like.ndim - 1))


def still(slopes: Tensor) -> Tensor:
    """Rows whose gradient is exactly zero.  # [n, ...] -> [n] bool"""
    return (slopes == 0).flatten(1).all(1)
