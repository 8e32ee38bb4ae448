"""What the numbers say, in plain sentences, and what they do not say."""

from collections.abc import Sequence

from certood.report.choices import called, radius
from certood.report.drawing import listed
from certood.report.evaluated import Evaluated

GUESSING = 0.5


def findings(runs: Sequence[Evaluated]) -> list[str]:
    """The paper's central claim on these runs: is what one guarantees more than what another shows under attack?

    From the strongest guarantee to the weakest, at one radius: of the others the tables tell.
    """
    eps = radius(runs)
    if eps is None:
        return []
    best: dict[str, float] = {}
    for run in runs:
        for (at, out_set), cell in run.cells.items():
            if at == eps:
                best[out_set] = max(best.get(out_set, 0.0), cell.aucs.guaranteed)
    out_sets = sorted(best, key=lambda out_set: -best[out_set])
    lines = [_finding(runs, eps, out_set) for out_set in out_sets if best[out_set] > 0]
    if not lines:
        return [f"No run guarantees anything at eps {eps:g}: every guaranteed AUC is 0."]
    without = [called(out_set) for out_set in out_sets if best[out_set] == 0]
    return [*lines, *([f"No run guarantees anything on {listed(without)}, eps {eps:g}."] if without else [])]


def _finding(runs: Sequence[Evaluated], eps: float, out_set: str) -> str:
    cells = {run.name: run.cells[eps, out_set] for run in runs if (eps, out_set) in run.cells}
    best = max(cells, key=lambda name: cells[name].aucs.guaranteed)
    guaranteed = cells[best].aucs.guaranteed
    where = f"{called(out_set)}, eps {eps:g}:"
    if guaranteed <= GUESSING:
        return f"{where} the best guaranteed AUC is {_percent(guaranteed)} ({best}): no better than guessing."
    attacked = {name: cell.aucs.adversarial for name, cell in cells.items() if cell.aucs.guaranteed == 0}
    sides: dict[str, list[str]] = {}
    for name, share in attacked.items():
        if share is not None:
            ours, theirs = round(guaranteed, 3), round(share, 3)  # as they are shown
            side = "more than" if ours > theirs else "as much as" if ours == theirs else "less than"
            sides.setdefault(side, []).append(f"{name} ({_percent(share)})")
    words = [f"{side} {listed(names)}" for side, names in sides.items()]
    line = f"{where} {best} guarantees an AUC of {_percent(guaranteed)} whatever an attacker does"
    if words:
        line += f"; that is {' and '.join(words)} under our attack, without any guarantee"
    return f"{line}."


def promise(runs: Sequence[Evaluated]) -> str:
    """What it is and is not."""
    if not _radii(runs):
        return "No out-set was evaluated, so nothing is guaranteed here."
    return (
        "What a guarantee is: for each single image of these sets, nobody who changes each pixel by at most "
        f"{_radii(runs)} (in units of the pixel range from 0 to 1) can raise the confidence above the bound. It says "
        "nothing about other images. An attack finds how bad it is at least, a bound how bad it is at most. "
        f"{_floats(runs)}"
    )


def threat(runs: Sequence[Evaluated]) -> str:
    """What an attacker may do."""
    if not _radii(runs):
        return "Nobody attacked anything: no out-set was evaluated."
    return (
        "The threat model: an attacker who knows everything about the network may change each pixel of an out-image by "
        f"at most {_radii(runs)}, within the pixel range from 0 to 1. In-images are taken as they are."
    )


def _radii(runs: Sequence[Evaluated]) -> str:
    """Those that were evaluated, in words; none: no words."""
    radii = sorted({cell.eps for run in runs for cell in run.summary.cells})
    return listed([f"{eps:g}" for eps in radii], "or") if radii else ""


def _percent(share: float) -> str:
    """As tables show it."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def _floats(runs: Sequence[Evaluated]) -> str:
    """Do the bounds allow for rounding?"""
    files = [known["settings"] for run in runs for known in run.meta["files"].values() if known["settings"]["eps"]]
    if files and all(settings.get("sound bounds") for settings in files):
        return (
            "The bounds are sound in floating point: they hold for the network as it is executed in float32, in any "
            "order of summation, for every float32 image."
        )
    return "Some bounds are not rounded outwards: they can lie a few 1e-6 below the exact value, in log-confidence."


def facts(run: Evaluated) -> list[tuple[str, str]]:
    """Recipe, digests, versions, attack: whatever somebody needs to do it again."""
    meta = run.meta
    shown = [("method", run.title), ("weights (sha256)", meta["weights"])]
    shown += [(key, f"certood {value}" if key == "certood" else str(value)) for key, value in meta["versions"].items()]
    shown.append(("recipe", ", ".join(f"{key} {value}" for key, value in run.recipe.items() if value != "")))
    for key, known in meta["files"].items():
        settings = known["settings"]
        if settings["weights"] != meta["weights"]:
            continue
        what = f"{known['rows']} images, data {settings['data'][:16]}"
        if known["attacked"]:
            what += (
                f"; {known['attacked']} attacked with the budget {settings['attack']}, seed {settings['seed']}, "
                f"{known['gradients'] / known['attacked']:.1f} gradients an image"
            )
            others = ", ".join(settings["transfer from"])
            what += f", and from the worst points of {others}" if others else ""
        shown.append((key, what))
    shown += [(f"without {name}", how) for name, how in meta["skipped"].items()]
    return shown
