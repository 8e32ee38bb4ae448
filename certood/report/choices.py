"""What of the runs a picture shows: which radius, which out-sets, and which rows are of one image."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from certood.paper import NAMES
from certood.report.evaluated import Evaluated
from certood.scores import Columns

Indices = NDArray[np.int64]


def called(image_set: str) -> str:
    """As the paper calls it."""
    return NAMES.get(image_set, image_set)


def radii(runs: Sequence[Evaluated], out_set: str) -> list[float]:
    return sorted({eps for run in runs for eps, name in run.cells if name == out_set})


def radius(runs: Sequence[Evaluated]) -> float | None:
    """The radius that most recipes were made for, of those evaluated; else the smallest. None: no out-sets."""
    measured = {eps for run in runs for eps, _ in run.cells}
    meant = Counter(run.recipe.get("eps") for run in runs)
    return min(measured, key=lambda eps: (-meant[eps], eps == 0, eps), default=None)


def out_sets(runs: Sequence[Evaluated], eps: float | None = None) -> list[str]:
    """Those evaluated at a radius, or at any."""
    return list(dict.fromkeys(name for run in runs for at, name in run.cells if eps in (None, at)))


def guarantee(run: Evaluated, eps: float) -> float:
    """How much a run guarantees: its guaranteed AUCs, over all out-sets."""
    return sum(cell.aucs.guaranteed for (at, _), cell in run.cells.items() if at == eps)


def sharing(runs: Sequence[Evaluated], eps: float, image_set: str) -> list[Evaluated]:
    """The runs that were evaluated on the same images of a set: on those of the first that was evaluated on any."""
    there = [run for run in runs if (eps, image_set) in {(0.0, run.summary.in_set), *run.cells}]
    known = [run.meta["files"][f"{eps:g}/{image_set}"] for run in there]
    data = [(each["settings"]["data"], each["classes"]) for each in known]
    return [run for run, each in zip(there, data, strict=True) if each == data[0]]


def own_class(names: Sequence[str], label: int) -> str:
    """Of an image; empty where it has none, -1."""
    return names[label] if 0 <= label < len(names) else ""


def columns(run: Evaluated, eps: float, image_set: str) -> Columns:
    return run.inside if (eps, image_set) == (0.0, run.summary.in_set) else run.outside[eps, image_set]


def common(runs: Sequence[Evaluated], eps: float, image_set: str, rows: int) -> Indices:
    """Which of the first rows of the first run are of images that all runs have seen."""
    indices = columns(runs[0], eps, image_set).index[:rows]
    seen = np.ones(len(indices), bool)
    for run in runs[1:]:
        seen &= np.isin(indices, columns(run, eps, image_set).index)
    return np.flatnonzero(seen)


def rows_of(of: Columns, indices: Indices) -> Indices:
    """The rows of images, by their index in their set: how many are attacked, and so their order, may differ by run."""
    order = np.argsort(of.index)
    return np.asarray(order[np.searchsorted(of.index, indices, sorter=order)], np.int64)
