"""Samples of the out-sets with what every run says on top, as the paper's letters."""

from collections.abc import Sequence

import numpy as np

from certood.metrics import confidences
from certood.report.choices import Indices, called, columns, common, out_sets, own_class, rows_of, sharing
from certood.report.drawing import LINE, WIDTH, colours, shortened
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture
from certood.report.sheets import Sheet, pixels

WITHOUT = 18  # samples of a set without classes: whole rows of nine or six
MOST = 27  # of one with classes
SHORT, HEAD = 2, 5  # letters of an answer and of a class that leave room for nine images in a row, else there are six
SEED = 0


def samples(runs: Sequence[Evaluated], eps: float) -> list[Picture]:
    return [picture for out_set in out_sets(runs, eps) for picture in _of(runs, eps, out_set)]


def _of(runs: Sequence[Evaluated], eps: float, out_set: str) -> list[Picture]:
    seen = sharing(runs, eps, out_set)
    first, classes = seen[0], seen[0].out_classes(eps, out_set)
    images = first.images(eps, out_set)
    rows = chosen(seen, eps, out_set, len(images))
    if not rows.size:
        return []
    names = [shortened(name, 9) for name in runs[0].classes]
    short = max(map(len, names)) <= SHORT and max(map(len, classes), default=0) <= HEAD
    widest = 9 if short else 6
    across = -(-len(rows) // -(-len(rows) // widest))  # rows of one length, as far as it goes
    margin = 0.35 + 0.13 * max(len(shortened(run.name, 14)) for run in seen)
    cell = (WIDTH - margin - 0.1) / widest
    words = LINE * (len(seen) + bool(classes))
    high = words + cell + 0.15
    sheet = Sheet(0.1 + -(-len(rows) // across) * high)
    theirs = columns(first, eps, out_set)
    for at, row in enumerate(rows):
        left, top = margin + at % across * cell, 0.05 + at // across * high
        if classes:
            sheet.words(left, top + LINE / 2, shortened(own_class(classes, theirs.label[row]), 9), bold=True)
        for line, run in enumerate(seen, bool(classes)):
            middle = top + LINE * (line + 0.5)
            if at % across == 0:
                sheet.words(margin - 0.12, middle, shortened(run.name, 14), align="right")
            ours = columns(run, eps, out_set)
            here = rows_of(ours, theirs.index[row : row + 1])
            share = float(confidences(ours.score[here])[0])
            sheet.bar(left, middle, cell - 0.12, share, colours(runs)[run.name])
            sheet.words(left + 0.05, middle, f"{names[ours.prediction[here][0]]}: {100 * share:.0f}")
        sheet.image(pixels(images[row]), left, top + words + 0.05, cell - 0.12)
    drawn = f"one image of each class, drawn at random ({len(rows)} of {len(classes)} classes)"
    caption = (
        f"{called(out_set)}: {drawn if classes else f'{len(rows)} images drawn at random'}. On top of each: the class "
        "that each run takes it for and its confidence in percent, which is the length of the bar. None of the images "
        "belongs to the in-distribution, so a short bar is right."
    )
    return [
        Picture(f"samples-{out_set}", f"Samples of {called(out_set)}, and what the runs say", caption, sheet.figure)
    ]


def chosen(runs: Sequence[Evaluated], eps: float, out_set: str, kept: int) -> Indices:
    """Rows of the first run whose images were kept: one of each class, in the order of classes, or a few of all."""
    rows = np.random.default_rng(SEED).permutation(common(runs, eps, out_set, kept))
    labels = columns(runs[0], eps, out_set).label[rows]
    if not runs[0].out_classes(eps, out_set):
        return np.asarray(rows[:WITHOUT])
    classes, first = np.unique(labels, return_index=True)
    classes, first = classes[classes >= 0], first[classes >= 0]  # -1: of no class
    if len(classes) > MOST:
        first = first[np.sort(np.random.default_rng(SEED).permutation(len(classes))[:MOST])]
    return np.asarray(rows[first])
