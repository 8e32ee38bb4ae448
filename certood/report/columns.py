"""What a table is drawn from, and how its columns come to be: in percent, with the best of our runs marked."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self, final

from certood.metrics import Forms
from certood.paper import ADDITIONAL, MAIN, STANDS_IN
from certood.report.choices import called
from certood.report.evaluated import Evaluated
from certood.report.parts import Number, Table
from certood.summary import Cell

Best = Callable[[Iterable[float]], float]
Values = Sequence[float | None]
Column = list[Number]


@final
@dataclass(frozen=True)
class Part:
    """Runs against out-sets at one radius. Its words are those of captions."""

    runs: tuple[Evaluated, ...]
    eps: float
    out_sets: tuple[str, ...]

    @classmethod
    def at(cls, eps: float, runs: Sequence[Evaluated]) -> Self:
        """Everything that was measured at a radius."""
        there = tuple(run for run in runs if any(radius == eps for radius, _ in run.cells))
        names = dict.fromkeys(out_set for run in there for radius, out_set in run.cells if radius == eps)
        main, rest = sides(there[0].summary.in_set, tuple(names))
        return cls(there, eps, main + rest)

    @property
    def in_set(self) -> str:
        return self.runs[0].summary.in_set

    def cells(self, out_set: str) -> list[Cell | None]:
        return [run.cells.get((self.eps, out_set)) for run in self.runs]

    def every(self) -> list[Cell]:
        return [cell for out_set in self.out_sets for cell in self.cells(out_set) if cell]

    def inside(self) -> str:
        return f"{_counted(run.summary.images for run in self.runs)} images of {called(self.in_set)}"

    def outside(self) -> str:
        which = called(self.out_sets[0]) if len(self.out_sets) == 1 else "each out-set"
        return f"{_counted(cell.images for cell in self.every())} images of {which}"

    def attacked(self) -> str:
        """Which images an adversarial form is of."""
        numbers = [cell.aucs.attacked for cell in self.every() if cell.aucs.attacked]
        return f"over the {_counted(numbers)} attacked images only" if numbers else "nothing was attacked"

    def partly(self) -> bool:
        """Whether adversarial forms are of fewer images than the others."""
        return any(0 < cell.aucs.attacked < cell.images for cell in self.every())

    def caveat(self) -> str:
        """Somebody may have evaluated one run on fewer images than another."""
        for key in (f"0/{self.in_set}", *(f"{self.eps:g}/{out_set}" for out_set in self.out_sets)):
            known = [run.meta["files"].get(key) for run in self.runs]
            if len({(each["settings"]["data"], each["rows"]) for each in known if each}) > 1:
                return " Not all runs were evaluated on the same images."
        return ""


def sides(in_set: str, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paper's main out-sets in its order, with what stands in for them, and the others."""
    if in_set not in MAIN:
        return tuple(names), ()
    main = [each for name in MAIN[in_set] for each in (name, STANDS_IN.get(name, name)) if each in names]
    rest = [name for name in (*ADDITIONAL[in_set], *names) if name in names and name not in main]
    return tuple(dict.fromkeys(main)), tuple(dict.fromkeys(rest))


def _counted(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def column(shares: Values, papers: Values, best: Best | None = None) -> Column:
    """Of all runs. Best are those whose one decimal is that of the best, as in the paper; where all runs are alike, as
    those that guarantee nothing, none is."""
    ours = [None if share is None else 100 * share for share in shares]
    measured = [value for value in ours if value is not None]
    top = f"{best(measured):.1f}" if best and len({f"{value:.1f}" for value in measured}) > 1 else None
    return [
        Number(value, _known(paper), value is not None and f"{value:.1f}" == top)
        for value, paper in zip(ours, papers, strict=True)
    ]


def _known(paper: float | None) -> float | None:
    return None if paper is None or math.isnan(paper) else paper


def three(ours: Sequence[Forms[float] | None], papers: Sequence[Values | None], best: Best) -> list[Column]:
    """Clean, adversarial, guaranteed."""
    columns: list[Values] = [
        [each and each.clean for each in ours],
        [each and each.adversarial for each in ours],
        [each and each.guaranteed for each in ours],
    ]
    return [
        column(values, [None if each is None else each[place] for each in papers], best)
        for place, values in enumerate(columns)
    ]


def table(
    part: Part, kind: str, title: str, caption: str, second: str | None, heads: Sequence[str], columns: list[Column]
) -> Table:
    """`second` is the head of the one column before those of the out-sets, if there is one."""
    radius = f", eps {part.eps:g}" if part.out_sets else ""
    ending = f"-{part.eps:g}".replace(".", "_") if part.out_sets else ""  # no dot: whoever adds .tex replaces nothing
    return Table(
        name=f"{kind}{ending}",
        title=f"{title}: {called(part.in_set)}{radius}",
        caption=caption + part.caveat(),
        first=("Run", second) if second else ("Run",),
        groups=tuple(called(out_set) for out_set in part.out_sets),
        heads=tuple(heads),
        rows=tuple(zip(map(_label, part.runs), zip(*columns, strict=True), strict=True)),
    )


def _label(run: Evaluated) -> str:
    """Its name, and its method where the name does not say it."""
    words, title = re.split("[ _-]", run.name.lower()), re.sub("[ _-]", "", run.title).lower()
    starts = range(len(words))
    said = any(title == "".join(words[first : last + 1]) for first in starts for last in starts)
    return run.name if said else f"{run.name} ({run.title})"
