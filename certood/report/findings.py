"""What the numbers say, in plain sentences, and what they do not say."""

from collections.abc import Sequence

from certood.report.choices import called
from certood.report.evaluated import Evaluated
from certood.summary import Cell


def findings(runs: Sequence[Evaluated]) -> list[str]:
    """The paper's central claim on these runs: is what one guarantees more than what another shows under attack?"""
    lines = []
    for eps, out_set in dict.fromkeys(key for run in runs for key in run.cells):
        cells = {run.name: run.cells[eps, out_set] for run in runs if (eps, out_set) in run.cells}
        best = max(cells, key=lambda name: cells[name].aucs.guaranteed)
        guaranteed = cells[best].aucs.guaranteed
        if guaranteed == 0:
            continue
        attacked = {name: _under_attack(cell) for name, cell in cells.items() if cell.aucs.guaranteed == 0}
        beaten = [
            f"{name} ({share:.1%})" for name, share in attacked.items() if share is not None and share < guaranteed
        ]
        better = [
            f"{name} ({share:.1%})" for name, share in attacked.items() if share is not None and share >= guaranteed
        ]
        line = f"{called(out_set)}, eps {eps:g}: {best} guarantees an AUC of {guaranteed:.1%} whatever an attacker does"
        if beaten:
            line += f", more than {_and(beaten)} {'has' if len(beaten) == 1 else 'have'} left under our attack"
        if better:
            line += f"{'; ' if beaten else ', '}less than {_and(better)} under our attack, which guarantee nothing"
        lines.append(line + ".")
    if not lines:
        lines.append("No run guarantees anything on these sets: every guaranteed AUC is 0.")
    return lines


def threat(runs: Sequence[Evaluated]) -> str:
    """What the guarantee is and is not."""
    radii = sorted({cell.eps for run in runs for cell in run.summary.cells})
    return (
        "The guarantee, for each single image of these sets: nobody who changes each pixel by at most "
        f"{_or([f'{eps:g}' for eps in radii])} (in units of the pixel range from 0 to 1) can raise the confidence "
        "above the bound. It says nothing about other images. An attack finds how bad it is at least, a bound how bad "
        "it is at most. The bounds are computed in float32 and not rounded outwards: they can lie a few 1e-6 below the "
        "exact value, in log-confidence."
    )


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


def _under_attack(cell: Cell) -> float | None:
    return cell.aucs.adversarial


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
