"""One evaluated run with all its rows in memory: what every table and picture is drawn from."""

import math
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

METHODS = ("plain", "ceda", "oe", "acet", "ccu", "good", "prood")  # the paper's order
SETTINGS = {"data", "attack", "seed", "transfer from"}  # of a file, as `facts` tells them


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
    def recipe(self) -> dict[str, Any]:
        recipe: dict[str, Any] = self.meta["recipe"]
        return recipe

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
        return self._array(self._stored(eps, out_set), eps, out_set)

    def points(self, eps: float, out_set: str) -> NDArray[np.float32]:
        """The worst points found for the attacked rows.  # [attacked, C, H, W] in [0, 1]"""
        path = self.scores.file(eps, out_set).points
        found, stored = self._array(path, eps, out_set), self.images(eps, out_set)
        if found.shape[1:] != stored.shape[1:]:
            where = self._stored(eps, out_set)
            raise ScoreError(f"{path} holds points of shape {found.shape[1:]}, {where} images of {stored.shape[1:]}")
        return found

    def _stored(self, eps: float, out_set: str) -> Path:
        name: str = self._known(eps, out_set)["images"]
        return self.scores.folder.parent / "images" / name

    def _known(self, eps: float, out_set: str) -> dict[str, Any]:
        known: dict[str, Any] = self.meta["files"][f"{eps:g}/{out_set}"]
        return known

    def _array(self, path: Path, eps: float, out_set: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # a header is Python's notation: numpy, ast and tokenize may fail on it
            raise ScoreError(f"cannot read {path}: {error}; evaluate again") from None
        whole = array.ndim == 4 and array.dtype.kind in "uf" and 0 not in array.shape[1:]
        if not whole or len(array) < self.attacked(eps, out_set):
            found = f"{array.dtype} of shape {array.shape}"
            raise ScoreError(f"{path} holds no images of the attacked rows but {found}; evaluate again")
        return array


def read(folder: Path) -> list[Evaluated]:
    """Every run whose scores are in the folder, in the order of the paper's tables."""
    return sorted(map(read_one, evaluated(folder)), key=_place)


def read_one(scores: Scores) -> Evaluated:
    summary, meta = summarise(scores), scores.meta()
    files = {key: scores.file(*key).read() for key in scores.current()}
    _check(scores, meta, files)
    inside = files.pop((0.0, summary.in_set))
    return Evaluated(scores, meta, inside, files, summary)


def by_in_set(runs: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    """A report has a part for each in-distribution."""
    groups: dict[str, list[Evaluated]] = {}
    for run in runs:
        groups.setdefault(run.summary.in_set, []).append(run)
    return groups


def _place(run: Evaluated) -> tuple[int, float, str]:
    method = str(run.recipe.get("method", ""))
    quantile = run.recipe.get("quantile", 0.0) if method == "good" else 0.0
    return METHODS.index(method) if method in METHODS else len(METHODS), float(quantile), run.name


# ---- what a stranger may have changed --------------------------------------------------------------------------------


def _check(scores: Scores, meta: dict[str, Any], files: dict[tuple[float, str], Columns]) -> None:
    """Whatever a report goes on to use, so that a foreign folder is one clear line."""

    def demand(holds: bool, what: str) -> None:
        if not holds:
            raise ScoreError(f"{scores.folder / 'meta.json'}: {what}; evaluate this run again")

    demand(_words(meta.get("classes")) and bool(meta["classes"]), "the names of its classes are missing")
    demand(isinstance(meta.get("recipe"), dict), "its recipe is missing")
    method, numbers = meta["recipe"].get("method", ""), [meta["recipe"].get(key, 0.0) for key in ("eps", "quantile")]
    demand(isinstance(method, str) and all(map(_number, numbers)), "its recipe has no method, eps or quantile to read")
    demand(isinstance(meta.get("versions"), dict), "the versions that wrote it are missing")
    for (eps, name), columns in files.items():
        key = f"{eps:g}/{name}"
        known = meta["files"].get(key, {})
        images, attacked = known.get("images"), known.get("attacked")
        demand(_words(known.get("classes")), f"{key} does not say which classes its set has")
        demand(isinstance(images, str) and Path(images).name == images, f"{key} does not say which images it is of")
        demand(isinstance(attacked, int) and 0 <= attacked <= known["rows"], f"{key} does not say what was attacked")
        settings, labels = known["settings"], columns.label
        demand(settings.keys() >= SETTINGS, f"{key} does not say how it was evaluated")
        demand(isinstance(settings["transfer from"], dict), f"{key} does not say where its attack began")
        demand(settings["eps"] >= 0, f"{key} is of a radius below 0")
        own = len(known["classes"])
        demand(own == 0 or bool((labels < own).all()), f"{key} has labels of unknown classes")
        answers = columns.prediction
        demand(bool((answers >= 0).all() and (answers < len(meta["classes"])).all()), f"{key} predicts unknown classes")
        demand(len(np.unique(columns.index)) == len(columns.index), f"{key} has two rows of one image")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)
