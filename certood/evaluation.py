"""Detectors and image sets to scores: clean and certified for every image, adversarial for a seeded sample of them.

The images that are attacked come first, in batches that all runs of a contest share: each attacks alone, then from what
the others found. A batch is the unit of work: its rows are appended for all runs together, so a killed evaluation goes
on at a batch and gives the same files. For every row  score <= adversarial <= certified  or the evaluation stops.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certood.attacks import BUDGETS, Enough, Found, maximise
from certood.attacks.gradient import Attack
from certood.bounds import Box, full_precision
from certood.bounds.precision import sums_are_plain
from certood.data.order import Order, seed_for
from certood.data.sources import ImageSet
from certood.detectors import Detector
from certood.errors import AttackError, BrokenInvariant
from certood.scores import Row

# What rounding may add up to (log-odds) where a bound does not allow for it itself: one that is not sound, or scores
# of convolutions that a library may have done by Winograd's method.
SLACK, RELATIVE_SLACK = 1e-4, 1e-5

Watch = Callable[[str, str, int], None]  # run, attack, samples still open


@final
@dataclass(frozen=True)
class Plan:
    """How a set is evaluated: part of what identifies its scores."""

    budget: str = "standard"
    attacked: int = 1000  # samples a set
    seed: int = 0
    batch: int = 250

    def __post_init__(self) -> None:
        if self.budget not in ("none", *BUDGETS):
            raise AttackError(f"no attack budget is called {self.budget!r}; there are none, {', '.join(BUDGETS)}")
        if self.attacked < 1 or self.batch < 1 or self.seed < 0:
            raise AttackError(
                f"attacked samples and batch size are at least 1, a seed at least 0, not {self.attacked}, {self.batch} "
                f"and {self.seed}"
            )

    def batches(self, length: int) -> list[NDArray[np.int64]]:
        """The seeded sample first, then all other images; a batch is of one kind."""
        chosen = np.sort(Order(length, self.seed, "attack").indices(0, self.first(length)))
        others = np.setdiff1d(np.arange(length), chosen)
        return [part[at : at + self.batch] for part in (chosen, others) for at in range(0, len(part), self.batch)]

    def first(self, length: int) -> int:
        """How many rows come first: those that are attacked, if any are."""
        return min(self.attacked, length)


class Batch(NamedTuple):
    """What one run has to say about one batch."""

    rows: list[Row]
    points: Tensor | None  # the worst points, where the batch was attacked
    gradients: int  # evaluations of the gradient


def evaluate(
    detectors: Mapping[str, Detector],
    images: ImageSet,
    eps: float,
    plan: Plan,
    in_scores: Mapping[str, NDArray[np.float64]],
    device: torch.device,
    first: int = 0,
    watch: Watch | None = None,
    every: int = 1,
) -> Iterator[dict[str, Batch]]:
    """For every batch from number `first` on, or each `every`-th, what the detectors say. `in_scores` decide when an
    attack is enough."""
    attacked = plan.first(len(images)) if plan.budget != "none" and eps > 0 else 0
    done = 0
    for number, indices in enumerate(plan.batches(len(images))):
        done += len(indices)
        if number < first or (number - first) % every:
            continue
        x = pixels(images, indices).to(device)
        labels = images.labels(indices)
        found: dict[str, Found] = {}
        with full_precision(device):
            sides = {name: _look(detector, x, eps) for name, detector in detectors.items()}
            if done <= attacked:
                seed = seed_for(plan.seed, f"attack {images.name} {eps:g}", number)
                found = _attack(detectors, x, eps, plan, sides, in_scores, seed, watch)
        strict = sums_are_plain(device)
        yield {
            name: _batch(name, indices, labels, sides[name], found.get(name), eps, images, strict and detector.sound)
            for name, detector in detectors.items()
        }


def pixels(images: ImageSet, indices: NDArray[np.int64]) -> Tensor:
    """Float images in [0, 1].  # [N, C, H, W]"""
    stored = torch.from_numpy(images.images(indices))
    return stored.float() / 255 if stored.dtype == torch.uint8 else stored.float()


class _Side(NamedTuple):
    """Clean and certified, for one detector and batch."""

    predictions: Tensor
    scores: Tensor
    ceiling: Tensor


@torch.no_grad()
def _look(detector: Detector, x: Tensor, eps: float) -> _Side:
    scores, predictions = detector.score(x), detector.log_probs(x).argmax(1)
    ceiling = scores if eps == 0 else detector.score_upper(Box.around(x, eps))
    return _Side(predictions, scores, ceiling)


def _attack(
    detectors: Mapping[str, Detector],
    x: Tensor,
    eps: float,
    plan: Plan,
    sides: Mapping[str, _Side],
    in_scores: Mapping[str, NDArray[np.float64]],
    seed: int,
    watch: Watch | None,
) -> dict[str, Found]:
    """Each alone first, with all of the budget, then from the best points of the others: they can only add to it."""
    budget = BUDGETS[plan.budget]
    transfer = next((at for at, attack in enumerate(budget) if attack.start == "transfer"), len(budget))
    box = Box.around(x, eps)

    def run(name: str, attacks: Sequence[Attack], after: Found | None, pool: Mapping[str, Tensor]) -> Found:
        return maximise(
            detectors[name].score, box, x, budget=attacks, ceiling=sides[name].ceiling, pool=pool, after=after,
            enough=Enough(torch.from_numpy(in_scores[name]).to(x.device)), seed=seed,
            watch=partial(watch, name) if watch else None,
        )  # fmt: skip

    found = {name: run(name, budget, None, {}) for name in detectors}
    if transfer == len(budget) or len(detectors) == 1:
        return found
    pools = {name: {other: found[other].points for other in sorted(found) if other != name} for name in detectors}
    return {name: run(name, budget[transfer:], found[name], pools[name]) for name in detectors}


def _batch(
    name: str, indices: NDArray[np.int64], labels: NDArray[np.int64], side: _Side, found: Found | None, eps: float,
    images: ImageSet, strict: bool,
) -> Batch:  # fmt: skip
    scores, certified = side.scores.cpu().numpy(), side.ceiling.double().cpu().numpy()
    adversarial = np.full(len(indices), np.nan)
    attacks: tuple[str, ...] = ("",) * len(indices)
    if eps == 0:
        adversarial = scores
    elif found is not None:
        adversarial = np.maximum(found.scores.cpu().numpy(), scores)  # the clean image, whatever batch it came in
        attacks = found.attacks
    worst = np.fmax(scores, adversarial)
    relative = RELATIVE_SLACK * np.minimum(np.abs(worst), np.abs(certified))  # finite if one of them is
    slack = 0.0 if strict else SLACK + relative
    broken = np.flatnonzero(~(worst <= certified + slack) | np.isnan(scores))
    if len(broken):
        at = broken[0]
        raise BrokenInvariant(
            f"score <= adversarial <= certified does not hold for {name}: image {indices[at]} of {images.name}, eps "
            f"{eps:g}, has score {scores[at]:.9g}, adversarial {adversarial[at]:.9g} ({attacks[at] or 'none'}) and "
            f"certified {certified[at]:.9g} in log-odds. One of them is wrong: please report it with this line"
        )
    certified = np.maximum(certified, worst)  # by no more than the slack: what is reported keeps its order
    answers = side.predictions.cpu().tolist()
    columns = zip(indices, labels, answers, scores, adversarial, certified, attacks, strict=True)
    rows = [
        Row(int(index), int(label), answer, float(score), float(most), float(bound), attack)
        for index, label, answer, score, most, bound, attack in columns
    ]
    return Batch(rows, found.points if found else None, int(found.gradients.sum()) if found else 0)
