"""Attacks maximise a score over a `Box`: what they find bounds the worst case from below, as intervals do from above.

The caller owns the Box, and every point is projected into it before it is evaluated, so no attack can claim more than
its threat model. `maximise` runs a budget of attacks and returns the best point each sample was ever evaluated at.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from certood.attacks.blind import Peek, SquareSearch
from certood.attacks.budgets import BUDGETS
from certood.attacks.gradient import Attack, AutoPGD, MonotonePGD, SignAscent
from certood.attacks.hunt import Enough, Hunt, Score, Watch
from certood.attacks.sparse import SparseAscent
from certood.attacks.starts import STARTS
from certood.boxes import Box
from certood.errors import AttackError

__all__ = [
    "BUDGETS",
    "STARTS",
    "Attack",
    "AutoPGD",
    "Enough",
    "Found",
    "MonotonePGD",
    "Peek",
    "SignAscent",
    "SparseAscent",
    "SquareSearch",
    "maximise",
]


class Found(NamedTuple):
    """What the attacks found for each sample, and what it took."""

    points: Tensor  # where the score was highest, inside the box  # [N, ...]
    scores: Tensor  # the score there, as evaluated  # [N] float64
    attacks: tuple[str, ...]  # which attack, from which start, got there
    gradients: Tensor  # evaluations of the gradient that were spent  # [N]
    evaluations: Tensor  # of the score, with a gradient or without  # [N]
    gaps: Tensor  # certified ceiling minus score: how much worse the worst case may be; inf without a ceiling  # [N]


def maximise(
    score: Score,
    box: Box,
    x: Tensor | None = None,
    *,
    budget: str | Sequence[Attack] = "standard",
    ceiling: Tensor | None = None,
    enough: Enough | None = None,
    pool: Mapping[str, Tensor] | None = None,
    after: Found | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> Found:
    """The largest `score` in the box that the budget finds, never below that of `x` (the box's centre without one).

    `ceiling` is a guaranteed upper bound of the score; with `enough`, samples leave the search once they are so close
    to it, or to the end of their ranking, that nothing can change any more. `pool` holds points found elsewhere, by
    name (the best ones against other networks); the budget's attacks from "transfer" begin there. `after` is what an
    earlier call on the same box found, to go on from.

    >>> box = Box.around(torch.full((1, 2), 0.5), 0.25)
    >>> maximise(lambda z: z.sum(1), box).points
    tensor([[0.7500, 0.7500]])
    """
    attacks = _attacks(budget)
    x = box.centre if x is None else x
    if x.shape != box.shape:
        raise AttackError(f"the images are {tuple(x.shape)}, the box is {tuple(box.shape)}")
    if ceiling is not None and ceiling.shape != box.shape[:1]:
        raise AttackError(f"the ceiling is {tuple(ceiling.shape)}; there must be one for each of {len(box)} samples")
    for name, points in (pool or {}).items():
        if points.shape != box.shape:
            raise AttackError(f"the points from {name} are {tuple(points.shape)}, the box is {tuple(box.shape)}")
    hunt = Hunt(score, box, x, ceiling, enough, watch)
    seeds = torch.Generator().manual_seed(seed)
    if after is None:
        hunt.look(hunt.begin("clean"), x, gradient=False)
    else:
        hunt.resume(after.points, after.scores, after.attacks, after.gradients, after.evaluations)
    for attack in attacks:
        # Draws of its own: one that ends early, as certificates make it, leaves those after it as they were.
        draw = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=seeds)))
        for name, points in _starts(attack, hunt, pool or {}, draw):
            rows = hunt.begin(f"{name}/{type(attack).__name__}")
            attack.search(hunt, rows, points[rows], draw)
    return Found(
        hunt.points,
        hunt.scores,
        hunt.winners(),
        hunt.gradients,
        hunt.evaluations,
        hunt.ceiling - hunt.scores,
    )


def _attacks(budget: str | Sequence[Attack]) -> Sequence[Attack]:
    if not isinstance(budget, str):
        return budget
    if budget not in BUDGETS:
        raise AttackError(f"no attack budget is called {budget!r}; there are {', '.join(BUDGETS)}")
    return BUDGETS[budget]


def _starts(attack: Attack, hunt: Hunt, pool: Mapping[str, Tensor], draw: torch.Generator) -> list[tuple[str, Tensor]]:
    if attack.start == "transfer":
        return [(f"transfer:{name}", points) for name, points in pool.items()]
    if attack.start == "best":
        return [("best", hunt.points)]
    if attack.start not in STARTS:
        raise AttackError(f"no start is called {attack.start!r}; there are {', '.join(STARTS)}, best and transfer")
    return [(attack.start, STARTS[attack.start](hunt.box, hunt.x, draw))]
