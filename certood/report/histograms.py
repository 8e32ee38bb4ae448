"""Histograms of in-confidences and of guaranteed bounds on out-sets, as the paper's appendix has them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import ArrayLike

from certood.metrics import confidences
from certood.metrics.columns import Floats
from certood.report.choices import called, out_sets
from certood.report.drawing import FAINT, INK, SMALL, TEXT, WIDTH, bare, blank, colours, percent, plain, shortened
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture

BINS = 50
ZOOM, BELOW = 10, 0.2  # shares below a fifth are drawn ten times as high
BESIDE = 4  # out-sets in a row; more go to another figure
LEFT, TOP, ROW = 0.95, 0.7, 1.75  # inches


def histograms(runs: Sequence[Evaluated], eps: float) -> list[Picture]:
    sets = out_sets(runs, eps)
    return [
        _page(runs, eps, sets[first : first + BESIDE], f"-{first // BESIDE + 1}" if first else "")
        for first in range(0, len(sets), BESIDE)
    ]


def _page(runs: Sequence[Evaluated], eps: float, sets: Sequence[str], ending: str) -> Picture:
    colour, in_set = colours(runs), runs[0].summary.in_set
    height = TOP + ROW * len(runs) + 0.45
    figure, width = blank(height), (WIDTH - LEFT - 0.1) / (1 + len(sets))
    for column, name in enumerate((in_set, *sets)):
        heading = f"{plain(shortened(called(name), 15))}\n{'bounds' if column else 'confidences'}"
        figure.text((LEFT + column * width) / WIDTH, 1 - 0.1 / height, heading, fontsize=SMALL, color=INK, va="top")
    for row, run in enumerate(runs):
        top = height - TOP - row * ROW
        figure.text(LEFT / WIDTH, (top - 0.2) / height, plain(run.name), fontsize=TEXT, color=INK, va="center")
        for column, out_set in enumerate((None, *sets)):
            if out_set is None or (eps, out_set) in run.cells:
                place = (LEFT + column * width, top - ROW + 0.1, width - 0.25, ROW - 0.5)
                panel = figure.add_axes((place[0] / WIDTH, place[1] / height, place[2] / WIDTH, place[3] / height))
                scores = run.inside.score if out_set is None else run.outside[eps, out_set].certified
                _histogram(panel, confidences(scores), len(run.classes), colour[run.name])
                panel.tick_params(labelbottom=row == len(runs) - 1, labelleft=column == 0)
    caption = (
        f"Confidences on {called(in_set)} and guaranteed upper bounds on the confidences on the out-sets (ε = "
        f"{eps:g}), in {BINS} bins from 1 / {len(runs[0].classes)} to 1. The height is the share of images; shares "
        f"below {percent(BELOW)}, the line across, are drawn {ZOOM} times as high. Dotted: the mean. A run that "
        "guarantees nothing has all its bounds at 1."
    )
    return Picture(f"histograms{ending}", "Confidences inside, guaranteed bounds outside", caption, figure)


def _histogram(panel: Axes, values: Floats, classes: int, colour: str) -> None:
    counts, edges = np.histogram(values.clip(1 / classes, 1), BINS, (1 / classes, 1))
    mean = float(values.mean())
    panel.stairs(counts / values.size, edges, fill=True, color=colour)
    panel.set_yscale("function", functions=(stretched, squeezed))
    panel.axhline(BELOW, color=FAINT, linewidth=1, zorder=0)
    panel.axvline(mean, color=INK, linestyle=":", linewidth=2)
    right = mean < (1 + 1 / classes) / 2
    panel.annotate(
        f"{100 * mean:.1f} %", (mean, 1), (5 if right else -5, 0), xycoords=("data", "axes fraction"), fontsize=SMALL,
        textcoords="offset points", ha="left" if right else "right", va="top", color=INK,
    )  # fmt: skip
    bare(panel)
    panel.set_ylim(0, 1)
    panel.set_xlim(1 / classes - 0.01, 1.01)
    panel.xaxis.set_major_locator(FixedLocator([1 / classes, 1]))
    panel.xaxis.set_major_formatter(lambda share, _: percent(share))
    first, last = panel.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    panel.yaxis.set_major_locator(FixedLocator([0, 0.1, BELOW, 1]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(lambda share, _: percent(share))


def stretched(share: ArrayLike) -> Floats:
    low = np.asarray(share, np.float64)
    return np.where(low < BELOW, ZOOM * low, ZOOM * BELOW + low - BELOW)


def squeezed(height: ArrayLike) -> Floats:
    high = np.asarray(height, np.float64)
    return np.where(high < ZOOM * BELOW, high / ZOOM, high - ZOOM * BELOW + BELOW)
