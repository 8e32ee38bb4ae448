"""A table as Markdown, CSV, LaTeX and HTML: the same numbers to one decimal, the paper's beside them; CSV has all digits."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import chain

from certood.report.parts import Number, Table

MISSING = "–"


def as_markdown(table: Table) -> str:
    """A column for each out-set, as a terminal has no room for more; under a run the paper's, and how far we are off."""
    first, *others = table.first
    together = " / ".join(table.heads)
    heads = [first, *others, *(f"{group}: {together}" for group in table.groups)]
    rows = []
    for label, numbers in table.rows:
        rows.append([_marked_down(label), *_cells(table, numbers, _bold("**{}**"))])
        if _known(numbers):
            rows.append(["*paper*", *_cells(table, numbers, _theirs)])
    ours = "\n\nBold is the best of a column." if _any_best(table) else ""
    paper = " The rows *paper* are the paper's numbers, and in brackets ours less the paper's." if _any_known(table) else ""
    text = [f"### {_marked_down(table.title)}", f"{_marked_down(table.caption)}{ours}{paper}"]
    return "\n\n".join([*text, _grid([[_marked_down(head) for head in heads], *rows])]) + "\n"
