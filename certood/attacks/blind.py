"""Searches that need no gradient: a look at a start, and random squares, for what gradients do not show."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from certood.attacks.gradient import Attack
from certood.attacks.hunt import Hunt

HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # shares of the run after which squares shrink


@final
@dataclass(frozen=True)
class Peek(Attack):
    """Evaluates the start and goes no further: it costs little, and what it settles need not be searched."""

    start: str = "contrast"

    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        hunt.look(rows, points, gradient=False)


@final
@dataclass(frozen=True)
class SquareSearch(Attack):
    """Square Attack for l_inf (Andriushchenko et al. 2020): random squares go to the lower or upper end of the box.

    A change is kept if the score does not fall. Keeping it where the score stays the same, unlike the original, lets
    the search wander over plateaus, where most samples of GOOD models are. Squares cover `share` of the image at first
    and half of that after each of HALVINGS.
    """

    start: str = "best"
    steps: int = 200
    share: float = 0.5

    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        x, value, _ = hunt.look(rows, points, gradient=False)
        samples, channels, height, width = len(hunt.box), *_image(x)
        down, across = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
        for step in range(self.steps):
            share = self.share / 2 ** sum(step >= at * self.steps for at in HALVINGS)
            side = max(1, round(math.sqrt(share * height * width)))
            tall, wide = min(side, height), min(side if height > 1 else round(share * width) or 1, width)
            # Drawn for all rows, so that what is settled does not change what others do.
            top = torch.randint(height - tall + 1, (samples, 1), generator=draw).to(x.device)
            left = torch.randint(width - wide + 1, (samples, 1), generator=draw).to(x.device)
            up = torch.rand(samples, channels, 1, 1, generator=draw).to(x.device) < 0.5
            open_ = hunt.open[rows]
            rows, x, value = rows[open_], x[open_], value[open_]
            if not len(rows):
                return
            in_rows = (down >= top[rows]) & (down < top[rows] + tall)  # [n, H]
            in_columns = (across >= left[rows]) & (across < left[rows] + wide)  # [n, W]
            inside = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]  # [n, 1, H, W]
            box = hunt.box.select(rows)
            form = (len(rows), channels, height, width)
            ends = torch.where(up[rows], box.upper.reshape(form), box.lower.reshape(form))
            ahead = torch.where(inside, ends, x.reshape(form)).reshape(x.shape)
            look = hunt.look(rows, ahead, gradient=False)
            kept = look.values >= value
            x = torch.where(kept.reshape(-1, *[1] * (x.ndim - 1)), look.points, x)
            value = torch.where(kept, look.values, value)


def _image(x: Tensor) -> tuple[int, int, int]:
    """Channels, height and width; what is no image is one long row."""
    return (x.shape[1], x.shape[2], x.shape[3]) if x.ndim == 4 else (1, 1, x[0].numel() if len(x) else 1)
