"""A table as Markdown, CSV, LaTeX and HTML: to one decimal, the paper's numbers beside ours; CSV has all digits."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape

from certood.report.parts import Number, Table

MISSING = "–"
BOLD = "Bold is the best of a column."
BESIDE = "The paper's number stands under ours, and in brackets ours less the paper's."
Format = Callable[[Number], str]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def rounded(number: Number) -> str:
    return MISSING if number.ours is None else f"{number.ours:.1f}"


def beside(number: Number, minus: str = "-") -> str:
    """The paper's value and how far ours is from it; nothing where the paper has none.

    The difference is that of the numbers that are shown, so that a reader who subtracts them finds it.
    """
    if number.paper is None:
        return ""
    if number.ours is None:
        return f"{number.paper:.1f}"
    return f"{number.paper:.1f} {_less(number, minus)}"


def _less(number: Number, minus: str) -> str:
    """Ours less the paper's, in brackets."""
    if number.ours is None or number.paper is None:
        return ""
    difference = round(round(number.ours, 1) - round(number.paper, 1), 1) + 0.0  # no -0.0
    return f"({difference:+.1f})".replace("-", minus)


def _has_paper(numbers: Sequence[Number]) -> bool:
    return any(number.paper is not None for number in numbers)


def _legend(table: Table) -> str:
    """How to read the cells, as far as there is something to read."""
    every = [number for _, numbers in table.rows for number in numbers]
    parts = [BOLD] if any(number.best for number in every) else []
    return " ".join([*parts, *([BESIDE] if _has_paper(every) else [])])


def explained(table: Table) -> str:
    """The caption, and how to read the cells."""
    return f"{table.caption} {_legend(table)}".strip()


def _grouped(table: Table, numbers: Sequence[Number]) -> tuple[Sequence[Number], list[Sequence[Number]]]:
    """The numbers before the groups, and those of each group."""
    own, width = len(table.first) - 1, len(table.heads)
    groups = [own + width * at for at in range(len(table.groups))]
    return numbers[:own], [numbers[at : at + width] for at in groups]


# ---- Markdown --------------------------------------------------------------------------------------------------------


def as_markdown(table: Table) -> str:
    """A column for each out-set with its three numbers, since a terminal has no room for more."""
    together = " / ".join(table.heads)
    heads = [*table.first, *(f"{group}: {together}" for group in table.groups)]
    rows = []
    for label, numbers in table.rows:
        rows.append([_marked_down(label), *_joined(table, numbers, _strong)])
        if _has_paper(numbers):
            rows.append(["*paper*", *_joined(table, numbers, beside)])
    text = [f"### {_marked_down(table.title)}", _marked_down(explained(table))]
    return "\n\n".join([*text, _grid([[_marked_down(head) for head in heads], *rows])]) + "\n"


def _joined(table: Table, numbers: Sequence[Number], shown: Format) -> list[str]:
    own, groups = _grouped(table, numbers)
    cells = [shown(number) for number in own]
    for group in groups:
        words = [shown(number) for number in group]
        cells.append(" / ".join(word or MISSING for word in words) if any(words) else "")
    return cells


def _strong(number: Number) -> str:
    return f"**{rounded(number)}**" if number.best else rounded(number)


def _marked_down(words: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", words)


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """Columns of one width, so that the file reads well as it is too."""
    widths = [max(3, *(len(row[at]) for row in rows)) for at in range(len(rows[0]))]
    line = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    filled = [
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in (rows[0], line, *rows[1:])
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in filled)


# ---- CSV -------------------------------------------------------------------------------------------------------------


def as_csv(table: Table) -> str:
    """All digits, in percent; a second and a third column where the paper has the number."""
    heads = [*table.first[1:], *(f"{group} {head}" for group in table.groups for head in table.heads)]
    columns = list(zip(*(numbers for _, numbers in table.rows), strict=True))
    wide = [_has_paper(column) for column in columns]
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    named = [
        [head, f"{head} paper", f"{head} difference"] if more else [head]
        for head, more in zip(heads, wide, strict=True)
    ]
    writer.writerow([table.first[0], *(name for names in named for name in names)])
    for label, numbers in table.rows:
        cells = [_digits(number, more) for number, more in zip(numbers, wide, strict=True)]
        writer.writerow([label, *(cell for each in cells for cell in each)])
    return held.getvalue()


def _digits(number: Number, more: bool) -> list[str]:
    values = (number.ours, number.paper, number.difference) if more else (number.ours,)
    return ["" if value is None else repr(value) for value in values]


# ---- LaTeX -----------------------------------------------------------------------------------------------------------


def as_latex(table: Table) -> str:
    """booktabs, in the paper's layout: a group of columns for each out-set. Needs \\usepackage{booktabs} only.

    Four out-sets fit on a page, since the differences have a line of their own.
    """
    own, width = len(table.first), len(table.heads)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(explained(table))}}}",
        rf"\label{{tab:{table.name}}}",
        r"\small\setlength{\tabcolsep}{2.5pt}",
    ]
    lines += [rf"\begin{{tabular}}{{l{'r' * (own - 1)}{'r' * width * len(table.groups)}}}", r"\toprule"]
    if table.groups:
        spans = [rf"\multicolumn{{{width}}}{{c}}{{{_latex(group)}}}" for group in table.groups]
        lines.append(_latex_row(["" for _ in table.first] + spans))
        firsts = range(own + 1, own + 1 + width * len(table.groups), width)
        lines.append(" ".join(rf"\cmidrule(lr){{{at}-{at + width - 1}}}" for at in firsts))
    heads = [*table.first, *(head for _ in table.groups for head in table.heads)]
    lines.append(_latex_row([r"\scriptsize " * (len(head) > LONG) + _latex(head) for head in heads]))
    lines.append(r"\midrule")
    for label, numbers in table.rows:
        lines.append(_latex_row([_latex(label), *map(_bold, numbers)]))
        if _has_paper(numbers):
            theirs = ["" if number.paper is None else rf"\scriptsize {number.paper:.1f}" for number in numbers]
            less = [_less(number, "$-$") for number in numbers]
            lines.append(_latex_row([r"\quad\scriptsize paper", *theirs]))
            lines.append(_latex_row(["", *(rf"\scriptsize {each}" if each else "" for each in less)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _bold(number: Number) -> str:
    if number.ours is None:
        return "--"
    return rf"\textbf{{{rounded(number)}}}" if number.best else rounded(number)


LONG = 5  # letters of a head that is wider than its numbers
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ε": r"$\epsilon$",
    "–": "--",
}


def _latex(words: str) -> str:
    return "".join(LATEX.get(each, f"\\{each}" if each in "&%$#_{}" else each) for each in words)


# ---- HTML ------------------------------------------------------------------------------------------------------------


def as_html(table: Table) -> str:
    """For the page, which styles it, makes it sort and explains it: a caption in here would scroll away on a phone."""
    return "\n".join(["<table>", *_head(table), *_body(table), "</table>"])


def _head(table: Table) -> Iterator[str]:
    down = ' rowspan="2"' if table.groups else ""
    yield "<thead><tr>"
    yield "".join(f'<th scope="col"{down}>{escape(head)}</th>' for head in table.first)
    if table.groups:
        wide = len(table.heads)
        yield "".join(f'<th scope="colgroup" colspan="{wide}">{escape(group)}</th>' for group in table.groups)
        yield "</tr><tr>"
        heads = [f'<th scope="col"{_opens(at)}>{escape(head)}</th>' for at, head in enumerate(table.heads)]
        yield "".join(heads * len(table.groups))
    yield "</tr></thead>"


def _body(table: Table) -> Iterator[str]:
    yield "<tbody>"
    for label, numbers in table.rows:
        own, groups = _grouped(table, numbers)
        cells = [_cell(number) for number in own]
        cells += [_cell(number, _opens(at)) for group in groups for at, number in enumerate(group)]
        yield f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>'
    yield "</tbody>"


def _opens(at: int) -> str:
    """Room before the first column of a group."""
    return ' class="opens"' if at == 0 else ""


def _cell(number: Number, opens: str = "") -> str:
    ours = f"<strong>{rounded(number)}</strong>" if number.best else rounded(number)
    theirs = beside(number, "−")
    under = f"<small>{theirs}</small>" if theirs else ""
    sort = "" if number.ours is None else repr(number.ours)
    return f'<td{opens} data-sort="{sort}">{ours}{under}</td>'
