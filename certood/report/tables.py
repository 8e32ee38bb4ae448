"""The paper's tables of our own runs: main results, more out-sets, other radii, mean confidences. And other metrics.

AUCs are conservative, as the paper's.
"""

from collections.abc import Sequence
from dataclasses import replace

from certood.metrics import Forms, aupr_in, aupr_out, fpr_at_tpr
from certood.metrics.columns import Floats
from certood.paper import MAIN, PublishedConfidences, published, published_confidences
from certood.report.choices import called
from certood.report.columns import Column, Part, column, sides, table, three
from certood.report.evaluated import Evaluated
from certood.report.parts import Table

AUCS = ("AUC", "AAUC", "GAUC")
FORMS = ("clean", "adversarial", "guaranteed")


def tables(runs: Sequence[Evaluated]) -> list[Table]:
    """Of runs that share one in-distribution, in their order."""
    own, measured = _radii(runs)
    if not measured:
        return [_accuracies(Part(tuple(runs), 0.0, ()))]
    found = []
    for eps in own:
        part = Part.at(eps, runs)
        main, rest = sides(part.in_set, part.out_sets)
        found += [_aucs(replace(part, out_sets=main), "main", "Main results")] if main else []
        found += [_aucs(replace(part, out_sets=rest), "additional", "Additional out-sets")] if rest else []
    for eps in measured:
        if eps not in own:
            larger = eps > max(own, default=0.0)
            found.append(_aucs(Part.at(eps, runs), "radius", "Larger radius" if larger else "Another radius"))
    return [*found, *(_confidences(Part.at(eps, runs)) for eps in own or measured)]


def further(runs: Sequence[Evaluated]) -> list[Table]:
    """What the paper does not have: other metrics, at the radii of the recipes."""
    own, measured = _radii(runs)
    return [each for eps in own or measured for each in _further(Part.at(eps, runs))]


def _radii(runs: Sequence[Evaluated]) -> tuple[list[float], list[float]]:
    """Those that recipes were made for, and all; evaluated at others only, these are all that there is to show."""
    measured = sorted({eps for run in runs for eps, _ in run.cells})
    return [eps for eps in measured if eps in {run.recipe.get("eps") for run in runs}], measured


# ---- the paper's -----------------------------------------------------------------------------------------------------


def _accuracies(part: Part) -> Table:
    caption = f"Accuracy on {part.inside()}; no out-set was evaluated."
    return table(part, "main", "Main results", caption, "Accuracy", (), [_accuracy(part)])


def _aucs(part: Part, kind: str, title: str) -> Table:
    columns = [_accuracy(part)]
    for out_set in part.out_sets:
        papers = [published(run.title, part.in_set, part.eps, out_set) for run in part.runs]
        aucs = [cell and cell.aucs for cell in part.cells(out_set)]
        columns += three(aucs, [(paper.auc, paper.aauc, paper.gauc) if paper else None for paper in papers], max)
    every = [cell.aucs for cell in part.every()]
    crossed = any(each.adversarial is not None and each.adversarial < each.guaranteed for each in every)
    caption = (
        f"How well the confidence tells {part.inside()} from {part.outside()}: as they are (AUC), where an attack may "
        f"change each pixel by at most eps = {part.eps:g} (AAUC, {part.attacked()}), and guaranteed against every such "
        "change (GAUC). The AUCs are conservative: ties count as losses"
    )
    caption += "; where AAUC is below GAUC, the two are over different images." if crossed else "."
    return table(part, kind, title, caption, "Accuracy", AUCS, columns)


def _accuracy(part: Part) -> Column:
    """The paper has one accuracy, whatever the out-set, so it is known where none of its out-sets is here."""
    main = MAIN.get(part.in_set, ())
    papers = [[published(run.title, part.in_set, part.eps, name) for name in main] for run in part.runs]
    theirs = [next((each.accuracy for each in found if each), None) for found in papers]
    return column([run.summary.accuracy for run in part.runs], theirs, max)


def _confidences(part: Part) -> Table:
    def papers(out_set: str) -> list[PublishedConfidences | None]:
        return [published_confidences(run.title, part.in_set, part.eps, out_set) for run in part.runs]

    anywhere = papers(MAIN[part.in_set][0]) if part.in_set in MAIN else [None] * len(part.runs)
    columns = [column([run.summary.confidence for run in part.runs], [each and each.inside for each in anywhere])]
    for out_set in part.out_sets:
        ours, theirs = [cell and cell.confidences for cell in part.cells(out_set)], papers(out_set)
        clean, bound = [each and each.clean for each in ours], [each and each.guaranteed for each in ours]
        columns.append(column(clean, [each and each.outside for each in theirs]))
        columns.append(column(bound, [each and each.bound for each in theirs], min))
    caption = (
        f"Mean confidence on {part.inside()}, and on {part.outside()} the mean confidence and the mean of its "
        f"guaranteed upper bounds, if each pixel changes by at most eps = {part.eps:g}. On out-sets low is good; a "
        "bound of 100 guarantees nothing."
    )
    return table(part, "confidence", "Mean confidence", caption, called(part.in_set), ("mean", "bound"), columns)


# ---- other metrics ---------------------------------------------------------------------------------------------------


def _further(part: Part) -> list[Table]:
    """A table for each metric: nine numbers to an out-set would be for nobody."""
    measured = [[_metrics(run, part.eps, out_set) for run in part.runs] for out_set in part.out_sets]
    inside, outside = part.inside(), part.outside()
    low, high = "Low is good", "High is good"
    if part.partly():
        low += "; where adversarial is above guaranteed, the two are over different images"
        high += "; it depends on the number of out-images, so that adversarial, over fewer, is not comparable"
    forms = (
        f"the out-images as they are (clean), attacked within eps = {part.eps:g} (adversarial, {part.attacked()}), and "
        "at their guaranteed bounds (guaranteed)"
    )
    texts = (
        ("fpr", "FPR at 95 % TPR", f"Share of {outside} that a threshold accepts which accepts 95 % of {inside}", low),
        ("aupr-in", "AUPR-in", f"Average precision of finding {inside} by high confidence among {outside}", high),
        ("aupr-out", "AUPR-out", f"Average precision of finding {outside} by low confidence among {inside}", high),
    )
    found = []
    for which, (kind, title, what, good) in enumerate(texts):
        columns: list[Column] = []
        for of_runs in measured:
            forms_of = [each and _picked(each, which) for each in of_runs]
            columns += three(forms_of, [None] * len(of_runs), min if kind == "fpr" else max)
        found.append(table(part, kind, title, f"{what}: {forms}. {good}.", None, FORMS, columns))
    return found


def _metrics(run: Evaluated, eps: float, out_set: str) -> Forms[tuple[float, ...]] | None:
    rows, inside = run.outside.get((eps, out_set)), run.inside.score

    def metrics(outside: Floats) -> tuple[float, ...]:
        return fpr_at_tpr(inside, outside), aupr_in(inside, outside), aupr_out(inside, outside)

    return Forms.of(metrics, rows.score, rows.adversarial, rows.certified) if rows else None


def _picked(forms: Forms[tuple[float, ...]], which: int) -> Forms[float]:
    adversarial = forms.adversarial[which] if forms.adversarial else None
    return Forms(forms.clean[which], adversarial, forms.guaranteed[which], forms.attacked)
