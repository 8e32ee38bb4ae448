"""card.md: what was trained, on what, and what came out, for whoever finds the folder later."""

from collections.abc import Collection, Mapping, Sequence

import certood
from certood.assembly import Sets
from certood.recipes import Recipe


def card(
    recipe: Recipe, sets: Sets, rows: Sequence[Mapping[str, float]], accuracy: float | None, weights_digest: str,
    skipped: Collection[int] = (),
) -> str:  # fmt: skip
    last = rows[-1]
    lines = [
        f"# {recipe.name}, {title(recipe)}",
        "",
        f"A network {recipe.network} for {sets.in_set.classes} classes of {recipe.in_set}, trained by certood "
        f"{certood.__version__} for {recipe.epochs} epochs in {sum(row['seconds'] for row in rows) / 60:.1f} minutes, "
        f"seed {recipe.seed}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| accuracy on the test split | {'no test split' if accuracy is None else f'{accuracy:.2%}'} |",
        f"| accuracy in the last epoch, augmented training images | {last['accuracy']:.2%} |",
    ]
    if sets.out_set is not None:
        lines += [
            f"| mean confidence on augmented {recipe.out_set}, last epoch | {last['confidence_out']:.2%} |",
            f"| mean guaranteed bound there, eps {last['eps']:g} | {last['bound_out']:.2%} |",
        ]
    lines += [
        f"| weights (sha256) | {weights_digest} |",
        f"| in-distribution, {len(sets.in_set)} images (sha256) | {sets.in_set.digest} |",
    ]
    if sets.out_set is not None:
        lines.append(f"| out-distribution, {len(sets.out_set)} images (sha256) | {sets.out_set.digest} |")
        corrupt = len(sets.out_set.corrupt) + len(skipped)
        lines += [f"| corrupt images of it that were skipped | {corrupt} |"] if corrupt else []
    return "\n".join([*lines, "", "recipe.json holds every setting; log.csv a row an epoch.", ""])


def title(recipe: Recipe) -> str:
    """GOOD_80 as the paper writes it, and the others by name; what the paper does not have says so."""
    if recipe.method == "good":
        name = f"GOOD_{100 * recipe.quantile:g}"
    else:
        name = {"plain": "Plain", "prood": "ProoD"}.get(recipe.method, recipe.method.upper())
    return f"{name}+shapes" if recipe.blobs + recipe.strokes + recipe.pieces > 0 else name
