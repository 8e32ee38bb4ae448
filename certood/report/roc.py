"""ROC curves of clean, attacked and guaranteed scores, a few hundred points each however many rows there are."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from certood.metrics.columns import Floats
from certood.report.choices import called, out_sets
from certood.report.drawing import FAINT, FORMS, SMALL, Sign, colours, key, key_height, panels
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture

POINTS = 120  # thresholds taken from either side


def roc(runs: Sequence[Evaluated], eps: float) -> Picture:
    sets, colour = out_sets(runs, eps), colours(runs)
    signs = [
        [Sign(run.name, colour[run.name], "-") for run in runs],
        [Sign(form.word, "#555555", form.style) for form in FORMS],
    ]
    figure, axes = panels([called(name) for name in sets], 3.4, key_height(signs), below=0.85)
    key(figure, signs)
    ordered = {run.name: np.sort(run.inside.score) for run in runs}
    for panel, name in zip(axes, sets, strict=True):
        least = _least(max(len(run.outside[eps, name].score) for run in runs if (eps, name) in run.cells))
        for run in runs:
            if (eps, name) in run.cells:
                for form in FORMS:
                    outside = getattr(run.outside[eps, name], form.column)
                    outside = np.sort(outside[outside == outside])  # NaN: not attacked
                    if outside.size:
                        accepted, kept = staircase(ordered[run.name], outside)
                        panel.plot(
                            np.maximum(accepted, least), kept, color=colour[run.name], linestyle=form.style,
                            linewidth=2.2, drawstyle="steps-post", label=f"{run.name} {form.word}", clip_on=False,
                        )  # fmt: skip
        panel.set_xscale("log")
        panel.set_xlim(least, 1)
        panel.set_ylim(0, 1)
        panel.xaxis.set_major_locator(FixedLocator([0.0001, 0.001, 0.01, 0.1, 1]))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        panel.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        panel.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        panel.grid(color=FAINT, linewidth=1)
        panel.set_xlabel("out-images accepted", fontsize=SMALL)
        panel.set_ylabel("in-images accepted", fontsize=SMALL)
    caption = (
        "For every threshold on the confidence, the share of in-images and of out-images that are accepted "
        f"(logarithmic: the left edge holds everything below); further up and left is better. Changes by at most ε = "
        f"{eps:g}; no attack can push a run below its guaranteed curve. A curve along the right edge separates nothing."
    )
    return Picture("roc", f"ROC curves at ε = {eps:g}", caption, figure)


def _least(rows: int) -> float:
    """The left edge: one image of so many, but the axis spans two to four powers of ten."""
    return float(np.clip(10.0 ** np.floor(-np.log10(rows)), 1e-4, 1e-2))


def staircase(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """Corners of the ROC curve of sorted scores, from the left edge to (1, 1); the area below the steps is the
    conservative AUC where none is left out, and never more.

    Accepted are scores from a threshold up. Thresholds are out-scores at ranks in geometric steps, since that axis is
    logarithmic, and in-scores at equal steps.
    """
    ranks = outside.size - np.unique(np.geomspace(1, outside.size, POINTS).round()).astype(np.int64)
    equal = np.unique(np.linspace(0, inside.size - 1, POINTS).round()).astype(np.int64)
    thresholds = np.unique(np.concatenate([outside[ranks], inside[equal]]))[::-1]
    accepted = 1 - np.searchsorted(outside, thresholds) / outside.size
    kept = 1 - np.searchsorted(inside, thresholds) / inside.size
    none = 1 - np.searchsorted(inside, outside[-1], side="right") / inside.size  # above all out
    return np.concatenate([[0.0], accepted, [1.0]]), np.concatenate([[none], kept, [1.0]])
