"""The ten worst images of each out-set, since people look there first: clean, attacked, what was changed."""

from collections.abc import Sequence

import numpy as np

from certood.metrics import confidences
from certood.report.choices import called, columns, guarantee, out_sets, own_class
from certood.report.drawing import LINE, WIDTH, at_most, colours, shortened
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture
from certood.report.sheets import Sheet, amplified, factor, pixels

WORST, ACROSS = 10, 5
MARGIN = 1.5  # inches
HEAD = 13  # letters above an image


def worst(runs: Sequence[Evaluated], eps: float) -> list[Picture]:
    """Of the run that guarantees most, of those that were attacked."""
    found = []
    for out_set in out_sets(runs, eps):
        attacked = [run for run in runs if (eps, out_set) in run.cells and run.attacked(eps, out_set)]
        if attacked and eps > 0:
            best = max(attacked, key=lambda run: guarantee(run, eps))
            found.append(_of(best, eps, out_set, colours(runs)[best.name]))
    return found


def _of(run: Evaluated, eps: float, out_set: str, colour: str) -> Picture:
    attacked, own = run.attacked(eps, out_set), run.out_classes(eps, out_set)
    theirs = columns(run, eps, out_set)
    rows = np.argsort(-theirs.adversarial[:attacked], kind="stable")[:WORST]
    clean, found, bound = (confidences(each[rows]) for each in (theirs.score, theirs.adversarial, theirs.certified))
    images, points = run.images(eps, out_set), run.points(eps, out_set)
    cell = (WIDTH - MARGIN - 0.05) / ACROSS
    size = cell - 0.15
    high = LINE + 3 * (size + 0.08) + 3 * LINE + 0.35
    sheet = Sheet(0.1 + -(-len(rows) // ACROSS) * high)
    for at, row in enumerate(rows):
        left, top = MARGIN + at % ACROSS * cell, 0.05 + at // ACROSS * high
        shown, changed = pixels(images[row]), pixels(points[row])
        said = shortened(run.classes[theirs.prediction[row]], 6)
        room = HEAD - len(f" as {said}")
        words = f"{shortened(own_class(own, theirs.label[row]), room)} as {said}".strip()
        sheet.words(left, top + LINE / 2, words, bold=True)
        for down, image in enumerate((shown, changed, amplified(shown, changed, eps))):
            sheet.image(image, left, top + LINE + down * (size + 0.08), size)
            if at % ACROSS == 0:
                beside = ("clean", "attacked", f"difference\n× {factor(eps):.2g}")[down].split("\n")
                middle = top + LINE + down * (size + 0.08) + size / 2 - LINE * (len(beside) - 1) / 2
                for line, word in enumerate(beside):
                    sheet.words(MARGIN - 0.12, middle + LINE * line, word, align="right")
        under = top + LINE + 3 * (size + 0.08) + LINE / 2
        answers = (("clean", clean[at]), ("attacked", found[at]), ("guaranteed", bound[at]))
        for line, (name, share) in enumerate(answers):
            sheet.bar(left, under + LINE * line, size, float(share), colour)
            sheet.words(
                left + 0.06, under + LINE * line, at_most(float(share)) if line == 2 else f"{100 * share:.1f} %"
            )
            if at % ACROSS == 0:
                sheet.words(MARGIN - 0.12, under + LINE * line, name, align="right")
    caption = (
        f"Of {attacked:,} attacked images of {called(out_set)}, the {len(rows)} that {run.name} is surest of under "
        f"attack, worst first (ε = {eps:g}): the image, the worst neighbour found, and their difference "
        f"{factor(eps):.2g} times as strong, grey where nothing changed. Below: confidence in the image, in the "
        "neighbour, and the bound that no neighbour exceeds. On top: what it is, and what it is taken for as it is."
    )
    title = f"The {len(rows)} worst images of {called(out_set)} for {run.name}"
    return Picture(f"worst-{out_set}", title, caption, sheet.figure)
