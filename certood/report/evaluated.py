"""One evaluated run with all its rows in memory: what every table and picture is drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from certood.errors import ScoreError
from certood.scores import Columns, Scores, evaluated
from certood.summary import Cell, Summary, summarise


@final
@dataclass(frozen=True)
class Evaluated:
    scores: Scores
    meta: dict[str, Any]
    inside: Columns
    outside: dict[tuple[float, str], Columns]  # (eps, out-set)
    summary: Summary

    @property
    def name(self) -> str:
        """Of the run's folder: how it is called everywhere."""
        return self.summary.name

    @property
    def title(self) -> str:
        """Its method as the paper calls it: Plain, OE, GOOD_80."""
        return self.summary.title

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.meta["classes"])

    @cached_property
    def cells(self) -> dict[tuple[float, str], Cell]:
        return {(cell.eps, cell.out_set): cell for cell in self.summary.cells}

    def out_classes(self, eps: float, out_set: str) -> tuple[str, ...]:
        """Names of the out-set's own classes; empty where it has none."""
        return tuple(self._known(eps, out_set)["classes"])

    def attacked(self, eps: float, out_set: str) -> int:
        """The first so many rows were attacked."""
        return int(self._known(eps, out_set)["attacked"])

    def images(self, eps: float, out_set: str) -> NDArray[np.uint8]:
        """The images of the first rows, in their order; those of the in-set stand under eps 0.  # [n, C, H, W]"""
        return self._array(self.scores.folder.parent / "images" / self._known(eps, out_set)["images"])

    def points(self, eps: float, out_set: str) -> NDArray[np.float32]:
        """The worst points found for the attacked rows.  # [attacked, C, H, W] in [0, 1]"""
        return self._array(self.scores.file(eps, out_set).points)

    def _known(self, eps: float, out_set: str) -> dict[str, Any]:
        known: dict[str, Any] = self.meta["files"][f"{eps:g}/{out_set}"]
        return known

    def _array(self, path: Path) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ScoreError(f"cannot read {path}: {error}; evaluate again") from None
        return array


def read(folder: Path) -> list[Evaluated]:
    """Every run whose scores are in the folder."""
    return [read_one(scores) for scores in evaluated(folder)]


def read_one(scores: Scores) -> Evaluated:
    summary, meta = summarise(scores), scores.meta()
    files = {key: scores.file(*key).read() for key in scores.current()}
    inside = files.pop((0.0, summary.in_set))
    return Evaluated(scores, meta, inside, files, summary)


def by_in_set(runs: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    """A report has a part for each in-distribution."""
    groups: dict[str, list[Evaluated]] = {}
    for run in runs:
        groups.setdefault(run.summary.in_set, []).append(run)
    return groups
