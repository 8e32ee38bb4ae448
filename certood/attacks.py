"""Attacks maximise a score over a `Box`: what they find bounds the worst case from below, as intervals do from above.

The caller owns the Box and the attack projects every point into it, so no attack can claim more than its threat model.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from certood.boxes import Box


class Found(NamedTuple):
    points: Tensor  # where the score was highest, inside the box  # [N, ...]
    scores: Tensor  # the score there, as evaluated  # [N]


def maximise(
    score: Callable[[Tensor], Tensor],
    box: Box,
    start: Tensor | None = None,
    *,
    steps: int = 40,
    step_size: float | None = None,
) -> Found:
    """Gradient ascent by signs (Madry et al. 2018): z <- project(z + step_size * sign(grad score(z))), best point kept.

    Starts at `start` (the centre of the box without one). The default step crosses the box once: width / (steps + 1),
    for the paper's 40 steps 2 eps / 41 (appendix B).
    """
    point = box.project(box.centre if start is None else start).detach()
    stride = (box.upper - box.lower).max() / (steps + 1) if step_size is None else step_size
    best, best_score = point, torch.full(point.shape[:1], -torch.inf, dtype=torch.float64, device=point.device)
    for step in range(steps + 1):
        point.requires_grad_(step < steps)
        with torch.set_grad_enabled(step < steps):
            current = score(point.clone())  # a network may change its input in place  # [N]
        better = current.detach() > best_score
        best = torch.where(better.reshape(-1, *[1] * (point.ndim - 1)), point.detach(), best)
        best_score = torch.where(better, current.detach().double(), best_score)
        if step < steps:
            (gradient,) = torch.autograd.grad(current.sum(), point)
            point = box.project(point.detach() + stride * gradient.sign())
    return Found(best, best_score)
