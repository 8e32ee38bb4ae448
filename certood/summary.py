"""From score files to the numbers of the paper's tables. No torch in here: whoever has the scores can have these."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np

from certood.errors import ScoreError
from certood.metrics import Forms, accuracy, conservative_auc, mean_confidence
from certood.paper import Published, published
from certood.scores import Columns, Scores


@final
@dataclass(frozen=True)
class Cell:
    """One run against one out-set at one radius. AUCs are conservative, from 0 to 1."""

    out_set: str
    eps: float
    images: int
    aucs: Forms[float]  # AUC, AAUC, GAUC
    confidences: Forms[float]  # mean confidence, clean, under attack, and the mean guaranteed bound
    gradients: int  # evaluations that the attack spent, over all attacked images
    paper: Published | None  # in percent
    winners: dict[str, int] = field(default_factory=dict)  # attack that found the worst point -> images, most first
    gap: float | None = None  # median of certified less adversarial, in log-odds; inf where nothing is guaranteed

    def to_json(self) -> dict[str, Any]:
        return {
            "out_set": self.out_set,
            "eps": self.eps,
            "images": self.images,
            "attacked": self.aucs.attacked,
            "auc": self.aucs.clean,
            "aauc": self.aucs.adversarial,
            "gauc": self.aucs.guaranteed,
            "mean_confidence": self.confidences.clean,
            "mean_adversarial_confidence": self.confidences.adversarial,
            "mean_bound": self.confidences.guaranteed,
            "gradients": self.gradients,
            "winning_attacks": self.winners,
            "median_gap": self.gap if self.gap is not None and math.isfinite(self.gap) else None,
            "paper": None if self.paper is None else self.paper._asdict(),
        }


@final
@dataclass(frozen=True)
class Summary:
    """All that one evaluated run has to show."""

    name: str
    title: str
    in_set: str
    images: int
    accuracy: float
    confidence: float
    cells: tuple[Cell, ...]
    skipped: dict[str, str]  # sets that were not here, and how to get them

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.name,
            "method": self.title,
            "in_set": self.in_set,
            "images": self.images,
            "accuracy": self.accuracy,
            "mean_confidence": self.confidence,
            "out_sets": [cell.to_json() for cell in self.cells],
            "skipped": self.skipped,
        }


def summarise(scores: Scores) -> Summary:
    """The numbers of every finished file; an unfinished one raises."""
    meta, files = scores.meta(), scores.current()
    if not meta:
        raise ScoreError(f"{scores.folder} holds no scores; certood evaluate writes some")
    in_set = meta["in_set"]
    if (0.0, in_set) not in files:
        raise ScoreError(f"{scores.folder} has no scores of {in_set}: its evaluation was not finished; run it again")
    inside = _read(scores, 0.0, in_set, files)
    cells = []
    for eps, out_set in files:
        if eps > 0 or out_set != in_set:
            columns = _read(scores, eps, out_set, files)
            three = (columns.score, columns.adversarial, columns.certified)
            attacked = ~np.isnan(columns.adversarial)
            gaps = columns.certified[attacked] - columns.adversarial[attacked]
            cells.append(
                Cell(
                    out_set,
                    eps,
                    len(columns.score),
                    Forms.of(partial(conservative_auc, inside.score), *three),
                    Forms.of(mean_confidence, *three),
                    files[eps, out_set]["gradients"],
                    published(meta["title"], in_set, eps, out_set),
                    dict(Counter(filter(None, columns.attack)).most_common()),
                    float(np.median(gaps)) if gaps.size else None,
                )
            )
    return Summary(
        scores.name,
        meta["title"],
        in_set,
        len(inside.score),
        accuracy(inside.label, inside.prediction),
        mean_confidence(inside.score),
        tuple(cells),
        meta["skipped"],
    )


def _read(scores: Scores, eps: float, image_set: str, files: dict[tuple[float, str], dict[str, Any]]) -> Columns:
    columns = scores.file(eps, image_set).read()
    if len(columns.score) != files[eps, image_set]["rows"]:
        raise ScoreError(
            f"{scores.file(eps, image_set).path} has {len(columns.score)} of {files[eps, image_set]['rows']} rows: its "
            "evaluation was not finished; run it again"
        )
    return columns


def summaries(all_scores: Sequence[Scores]) -> list[Summary]:
    return [summarise(scores) for scores in all_scores]
