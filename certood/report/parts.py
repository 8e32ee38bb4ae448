"""What a report is made of: tables and pictures, each with a name, a title and one plain sentence."""

from dataclasses import dataclass
from typing import final

from matplotlib.figure import Figure


@final
@dataclass(frozen=True)
class Number:
    """A measured value in percent, and the paper's, where it has one."""

    ours: float | None  # None: not measured
    paper: float | None = None
    best: bool = False  # of its column

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@final
@dataclass(frozen=True)
class Table:
    """Rows are runs, columns come in groups (out-sets), each with the same heads (AUC, AAUC, GAUC)."""

    name: str  # of its files
    title: str
    caption: str
    first: tuple[str, ...]  # heads of the columns before the groups: run, accuracy
    groups: tuple[str, ...]
    heads: tuple[str, ...]  # of each group
    rows: tuple[
        tuple[str, tuple[Number, ...]], ...
    ]  # label, then the numbers of `first` after the label and all groups


@final
@dataclass(frozen=True)
class Picture:
    """A drawing, to be written as PNG and SVG."""

    name: str  # of its files
    title: str
    caption: str  # what is seen, in one or two plain sentences; also the text for who cannot see it
    figure: Figure
