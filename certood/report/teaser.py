"""The paper's first figure, of our own runs: an in-image, an out-image and its worst neighbour, and what all say."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from certood.metrics import confidences
from certood.report.choices import Indices, called, columns, common, guarantee, out_sets, rows_of, sharing
from certood.report.drawing import LINE, TEXT, WIDTH, at_most, colours, percent, shortened
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture
from certood.report.sheets import Pixels, Sheet, pixels

GAP = 0.3  # inches between columns
BOLD = 0.137  # inches of a bold letter, on average and a little more
ROW = 0.38  # from run to run
DULL = 0.5  # how much less a gap counts on images without classes, as noise: nobody sees what they are


class Case(NamedTuple):
    """An out-image that makes the point: `fooled` is sure of its neighbour, and `best` guarantees not to be."""

    worth: float
    out_set: str
    fooled: Evaluated
    image: int  # its index in the set
    row: int  # of `fooled`


class Column(NamedTuple):
    """An image and what the runs say of it: how sure they are, in words too."""

    head: str
    line: str
    image: Pixels
    answers: dict[str, tuple[float, str]]


def teaser(runs: Sequence[Evaluated], eps: float | None) -> list[Picture]:
    """Nothing where nothing was attacked."""
    if eps is None:
        return []
    best = max(runs, key=lambda run: guarantee(run, eps))
    case = _case(runs, best, eps)
    if case is None:
        return []
    bound = float(_confidences(best, eps, case.out_set, case.image, "certified"))
    shown = [*_inside(runs), _outside(runs, eps, case), _worst(runs, eps, case)]
    promise = f"{best.name} guarantees: no neighbour has a confidence above {at_most(bound)}."
    if at_most(bound) == at_most(1):
        promise = "No run guarantees anything for this image."
    caption = (
        f"How sure each run is of an image of {called(runs[0].summary.in_set)}, of one of {called(case.out_set)}, and "
        f"of the worst that an attack made of it by changing each pixel by at most {eps:g}. Each run at the worst "
        f"neighbour found for itself; that of {case.fooled.name} is pictured. The image was chosen since it shows the "
        f"difference. {promise}{' The thick line marks it.' if bound < 1 else ''}"
    )
    sheet = _sheet(runs, shown, promise, (best.name, bound))
    return [Picture("teaser", "An image, an out-image, and its worst neighbour", caption, sheet.figure)]


def _case(runs: Sequence[Evaluated], best: Evaluated, eps: float) -> Case | None:
    """Largest gap between what an attack reached and what `best` guarantees, or what was said of the clean image."""
    found = []
    for out_set in out_sets([best], eps):
        seen = sharing([best, *(run for run in runs if run is not best)], eps, out_set)
        for fooled in seen[1:] or seen:
            rows = common([fooled, *seen], eps, out_set, fooled.attacked(eps, out_set))
            if rows.size:
                theirs, ours = columns(fooled, eps, out_set), columns(best, eps, out_set)
                bound = confidences(ours.certified[rows_of(ours, theirs.index[rows])])
                clean, attacked = confidences(theirs.score[rows]), confidences(theirs.adversarial[rows])
                worth = (attacked - np.maximum(clean, bound)) * (1 if fooled.out_classes(eps, out_set) else DULL)
                at = int(worth.argmax())
                found.append(Case(float(worth[at]), out_set, fooled, int(theirs.index[rows[at]]), int(rows[at])))
    return max(found, key=lambda case: case.worth, default=None)


def _inside(runs: Sequence[Evaluated]) -> list[Column]:
    """The in-image that all runs are right about, as sure as can be; none where no images were kept."""
    in_set = runs[0].summary.in_set
    seen = sharing(runs, 0.0, in_set)
    first = seen[0]
    images = first.images(0.0, in_set)
    rows = common(seen, 0.0, in_set, len(images))
    if not rows.size:
        return []
    sure = np.ones(len(rows))
    for run in seen:
        here = rows_of(run.inside, first.inside.index[rows])
        right = run.inside.prediction[here] == run.inside.label[here]
        sure = np.minimum(sure, np.where(right, confidences(run.inside.score[here]), 0.0))
    row = int(rows[sure.argmax()])
    answers = {run.name: _answer(run, 0.0, in_set, int(first.inside.index[row])) for run in seen}
    line = _called(in_set, first.classes, int(first.inside.label[row]))
    return [Column("In-distribution", line, pixels(images[row]), answers)]


def _outside(runs: Sequence[Evaluated], eps: float, case: Case) -> Column:
    label = int(columns(case.fooled, eps, case.out_set).label[case.row])
    line = _called(case.out_set, case.fooled.out_classes(eps, case.out_set), label)
    answers = {run.name: _answer(run, eps, case.out_set, case.image) for run in _seeing(runs, eps, case)}
    return Column("Out-distribution", line, pixels(case.fooled.images(eps, case.out_set)[case.row]), answers)


def _worst(runs: Sequence[Evaluated], eps: float, case: Case) -> Column:
    answers = {}
    for run in _seeing(runs, eps, case):
        theirs = columns(run, eps, case.out_set)
        if not np.isnan(theirs.adversarial[_row(run, eps, case.out_set, case.image)]).any():
            reached = _confidences(run, eps, case.out_set, case.image, "adversarial")
            answers[run.name] = (reached, percent(reached))
    point = pixels(case.fooled.points(eps, case.out_set)[case.row])
    return Column("Worst neighbour", f"for {case.fooled.name}, ε = {eps:g}", point, answers)


def _seeing(runs: Sequence[Evaluated], eps: float, case: Case) -> list[Evaluated]:
    return sharing([case.fooled, *(run for run in runs if run is not case.fooled)], eps, case.out_set)


def _row(run: Evaluated, eps: float, image_set: str, index: int) -> Indices:
    return rows_of(columns(run, eps, image_set), np.array([index]))


def _confidences(run: Evaluated, eps: float, image_set: str, index: int, column: str) -> float:
    values = getattr(columns(run, eps, image_set), column)
    return float(confidences(values[_row(run, eps, image_set, index)])[0])


def _answer(run: Evaluated, eps: float, image_set: str, index: int) -> tuple[float, str]:
    said = int(columns(run, eps, image_set).prediction[_row(run, eps, image_set, index)][0])
    share = _confidences(run, eps, image_set, index, "score")
    return share, f"{percent(share)}  {shortened(run.classes[said], 12)}"


def _called(image_set: str, classes: Sequence[str], label: int) -> str:
    own = f", {shortened(classes[label], 12)}" if 0 <= label < len(classes) else ""
    return f"{shortened(called(image_set), 16)}{own}"


def _sheet(runs: Sequence[Evaluated], shown: Sequence[Column], promise: str, bound: tuple[str, float]) -> Sheet:
    margin = 0.35 + 0.13 * max(len(shortened(run.name, 16)) for run in runs)
    wide = (WIDTH - margin - 0.2) / len(shown) - GAP
    size, top = min(wide, 2.7), 0.2 + 2 * LINE
    first = top + size + 0.35
    lines = textwrap.wrap(promise, int((WIDTH - margin) / BOLD))
    sheet = Sheet(first + ROW * len(runs) + 0.1 + LINE * len(lines))
    for at, run in enumerate(runs):
        sheet.words(margin - 0.12, first + ROW * at, shortened(run.name, 16), align="right")
    for number, column in enumerate(shown):
        left = margin + number * (wide + GAP)
        sheet.words(left, 0.25, column.head, TEXT, bold=True)
        sheet.words(left, 0.25 + LINE, column.line)
        sheet.image(column.image, left, top, size)
        for at, run in enumerate(runs):
            if run.name in column.answers:
                share, words = column.answers[run.name]
                sheet.bar(left, first + ROW * at, wide, share, colours(runs)[run.name])
                marked = column is shown[-1] and run.name == bound[0] and bound[1] < 1
                if marked:
                    sheet.tick(left, first + ROW * at, wide, bound[1])
                beyond = wide * bound[1] if marked and wide * bound[1] < 0.6 else 0.0  # words that the line would cross
                sheet.words(left + beyond + 0.08, first + ROW * at, words)
    for at, line in enumerate(lines):
        sheet.words(margin, first + ROW * len(runs) + 0.05 + LINE * at, line, TEXT, bold=True)
    return sheet
