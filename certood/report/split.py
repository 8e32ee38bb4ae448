"""How GOOD's quantile splits a batch of out-images, as the paper shows it: which are guaranteed, which are let go."""

import math
from collections.abc import Sequence

import numpy as np

from certood.metrics import confidences
from certood.report.choices import called, columns, out_sets
from certood.report.drawing import LINE, TEXT, WIDTH, at_most
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture
from certood.report.sheets import Sheet, pixels

BATCH, ACROSS = 96, 16
SIDE = 0.15  # inches


def split(runs: Sequence[Evaluated], eps: float) -> list[Picture]:
    """Of the GOOD run that lets most images go, on the first set that has them; none where no run lets any go."""
    some = [run for run in runs if run.recipe.get("method") == "good" and 0 < run.recipe.get("quantile", 0) < 1]
    some = [run for run in some if any(at == eps for at, _ in run.cells)]
    return [_of(min(some, key=lambda run: float(run.recipe["quantile"])), eps)] if some else []


def _of(run: Evaluated, eps: float) -> Picture:
    named = out_sets([run], eps)
    out_set = next((name for name in named if run.out_classes(eps, name)), named[0])
    images = run.images(eps, out_set)[:BATCH]
    bounds = columns(run, eps, out_set).certified[: len(images)]
    quantile = float(run.recipe["quantile"])
    kept = math.floor(quantile * len(images) + 1e-9)  # as the loss counts them
    order = np.argsort(-bounds, kind="stable")
    parts = (
        ("Highest bounds: trained as they are", order[: len(order) - kept]),
        ("Guaranteed", order[len(order) - kept :]),
    )
    size = (WIDTH - 2 * SIDE) / ACROSS
    sheet = Sheet(0.15 + sum(1.6 * LINE + size * -(-len(rows) // ACROSS) for _, rows in parts))
    top = 0.1
    for title, rows in parts:
        shares = confidences(bounds[rows])
        ends = f", bounds from {at_most(float(shares.max()))} to {at_most(float(shares.min()))}" if rows.size else ""
        sheet.words(SIDE, top + LINE / 2, f"{title}: {len(rows)} images{ends}", TEXT, bold=True)
        for at, row in enumerate(rows):
            place = (SIDE + at % ACROSS * size, top + 1.3 * LINE + at // ACROSS * size)
            sheet.image(pixels(images[row]), *place, size - 0.05)
        top += 1.6 * LINE + size * -(-len(rows) // ACROSS)
    caption = (
        f"What the loss of {run.name} would make of {len(images)} images of {called(out_set)} (ε = {eps:g}). Ordered "
        f"by their bound, the {100 * quantile:g} % with the lowest are to be guaranteed; on the others only the answer "
        "to the image as it is counts. Those that look most like the in-distribution should be let go."
    )
    return Picture("split", f"How the quantile of {run.name} splits a batch", caption, sheet.figure)
