"""An attack that moves few pixels at a time, for models on which steps over all pixels fail."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from certood.attacks.gradient import Attack, Path
from certood.attacks.hunt import Hunt, still


@final
@dataclass(frozen=True)
class SparseAscent(Attack):
    """Moves the pixels that promise most to the end of the box where they pay, and goes back if that did not go up.

        gain_i = max over the two ends e of  g_i (e_i - x_i),  g the gradient at x;  the k largest gains move

    k begins at `first` of all pixels, grows by half after a success and shrinks by a third after a failure. Only a
    `part` of the pixels, drawn anew for every step, may move: so a failure is not the end.

    On GOOD models many units stand just below their threshold where an image is plain. No gradient shows them, any step
    along all signs wakes them, and the score falls however short the step is; not so where few pixels move. What that
    finds is measured in benchmarks/RESULTS.md.
    """

    start: str = "best"
    steps: int = 50
    first: float = 0.1
    part: float = 0.25

    def search(self, hunt: Hunt, rows: Tensor, points: Tensor, draw: torch.Generator) -> None:
        x, value, slope = hunt.look(rows, points)
        form = (len(hunt.box), x.shape[1:].numel())  # [N, d]
        path = Path(rows, x, value, slope, torch.full_like(value, max(1.0, self.first * form[1])))
        for step in range(1, self.steps + 1):
            # Drawn for all rows, so that what is settled does not change what others do.
            drawn = (torch.rand(form, generator=draw) < self.part).to(x.device)
            path = path.select(hunt.open[path.rows] & ~still(path.slope))
            if not len(path.rows):
                return
            box = hunt.box.select(path.rows)
            ends = box.corner(path.slope)
            gain = (path.slope * (ends - path.x)).flatten(1) * drawn[path.rows]  # [n, d], none below 0
            last = path.step.round().long()[:, None] - 1
            least = gain.sort(1, descending=True).values.gather(1, last)  # the k-th largest
            moved = ((gain >= least) & (gain > 0)).reshape(path.x.shape)
            path, up = path.climb(hunt, torch.where(moved, ends, path.x), last=step == self.steps)
            path.step = torch.where(up, path.step * 1.5, path.step / 1.5).clamp(1, form[1])
