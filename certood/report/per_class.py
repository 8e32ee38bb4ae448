"""Mean confidence on each class of an out-set, as the paper has it of the letters: which of them look like digits?"""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import FixedLocator, PercentFormatter

from certood.metrics import confidences
from certood.metrics.columns import Floats
from certood.report.choices import called, columns, out_sets, sharing
from certood.report.drawing import (
    FAINT,
    INK,
    SMALL,
    WIDTH,
    Sign,
    bare,
    blank,
    colours,
    key,
    key_height,
    plain,
    shortened,
)
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture

MOST = 30  # classes; of more, those that the runs are surest of
MARKERS = "osD^vPX"


def per_class(runs: Sequence[Evaluated], eps: float) -> list[Picture]:
    found = []
    for out_set in out_sets(runs, eps):
        seen = sharing(runs, eps, out_set)
        if seen[0].out_classes(eps, out_set):
            found.append(_of(runs, seen, eps, out_set))
    return found


def means(run: Evaluated, eps: float, out_set: str) -> Floats:
    """Mean confidence for each class of the out-set, NaN where it has no images."""
    theirs, classes = columns(run, eps, out_set), len(run.out_classes(eps, out_set))
    labelled = (theirs.label >= 0) & (theirs.label < classes)
    labels = theirs.label[labelled]
    sums = np.bincount(labels, confidences(theirs.score)[labelled], classes)
    counts = np.bincount(labels, minlength=classes)
    return np.where(counts, sums / np.maximum(counts, 1), np.nan)


def _of(runs: Sequence[Evaluated], seen: Sequence[Evaluated], eps: float, out_set: str) -> Picture:
    classes, colour = seen[0].out_classes(eps, out_set), colours(runs)
    found = {run.name: means(run, eps, out_set) for run in seen}
    over_all = np.nan_to_num(np.mean(list(found.values()), 0), nan=-1)
    shown = np.sort(np.argsort(-over_all, kind="stable")[:MOST])
    marker = {run.name: MARKERS[at % len(MARKERS)] for at, run in enumerate(runs)}
    signs = [[Sign(run.name, colour[run.name], "-", marker[run.name]) for run in seen]]
    top, names = key_height(signs) + 0.25, [plain(shortened(classes[at], 18)) for at in shown]
    upright = max(len(classes[at]) for at in shown) > 2  # long names: classes downwards, so that they can be read
    left, below = (0.3 + 0.13 * max(map(len, names)), 0.75) if upright else (1.0, 0.75)
    height = top + below + (0.32 * len(shown) if upright else 3.6)
    figure = blank(height)
    panel = figure.add_axes((left / WIDTH, below / height, 1 - (left + 0.4) / WIDTH, 1 - (top + below) / height))
    places = np.arange(len(shown))
    for run in seen:
        x, y = (found[run.name][shown], places) if upright else (places, found[run.name][shown])
        panel.plot(
            x,
            y,
            color=colour[run.name],
            marker=marker[run.name],
            markersize=8,
            linewidth=1.5,
            label=run.name,
            clip_on=False,
        )
    mine, other = (panel.yaxis, panel.xaxis) if upright else (panel.xaxis, panel.yaxis)
    mine.set_ticks(places, names)
    other.set_major_formatter(PercentFormatter(1, symbol=" %"))
    other.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    least = 1 / len(seen[0].classes)
    (panel.axvline if upright else panel.axhline)(least, color=INK, linestyle=":", linewidth=1.5)
    bare(panel)
    panel.grid(axis="both", color=FAINT, linewidth=1)
    if upright:
        panel.set_xlim(0, 1)
        panel.set_ylim(len(shown) - 0.5, -0.5)
        panel.set_xlabel("mean confidence", fontsize=SMALL)
    else:
        panel.set_ylim(0, 1)
        panel.set_xlim(-0.5, len(shown) - 0.5)
        panel.set_xlabel(f"class of {plain(called(out_set))}", fontsize=SMALL)
    key(figure, signs)
    caption = (
        f"Mean confidence of each run on the classes of {called(out_set)}"
        f"{'' if len(shown) == len(classes) else f', the {len(shown)} of {len(classes)} that they are surest of'}. "
        f"None is of the in-distribution: best is the dotted line, no preference at all (1 / {len(seen[0].classes)})."
    )
    return Picture(f"classes-{out_set}", f"Mean confidence on each class of {called(out_set)}", caption, figure)
