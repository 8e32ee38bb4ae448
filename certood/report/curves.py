"""Curves of a report: AUCs over the radius and over GOOD's quantile, with intervals; ROC curves; histograms."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, PercentFormatter

from certood.metrics import Interval, bootstrap_interval, conservative_auc, delong_interval
from certood.metrics.columns import Floats
from certood.report.choices import called, out_sets, radii
from certood.report.drawing import FAINT, FORMS, SMALL, Form, Sign, colours, key, key_height, panels, plain
from certood.report.evaluated import Evaluated
from certood.report.histograms import histograms
from certood.report.parts import Picture
from certood.report.roc import roc

RESAMPLES = 300
MANY = 5000  # scores from which DeLong's interval is the bootstrap's to three digits, and a hundred times faster
NARROW = 1.5  # inches of names beside a panel, that leave it room for three marks
INTERVALS = "intervals hold 95 % of what other images of the same sets would give"


def curves(runs: Sequence[Evaluated], eps: float | None) -> list[Picture]:
    """Of runs that share one in-distribution, the later ones at one radius."""
    found: list[Picture] = []
    if eps is not None:
        found += [dots(runs, eps) if _one_radius(runs) else lines(runs), *trade_off(runs, eps), roc(runs, eps)]
        found += histograms(runs, eps)
    return found


def _one_radius(runs: Sequence[Evaluated]) -> bool:
    return all(len(radii(runs, out_set)) == 1 for out_set in out_sets(runs))


# ---- intervals -------------------------------------------------------------------------------------------------------


def interval(inside: Floats, outside: Floats, value: float) -> Interval:
    """Of the conservative AUC, whose value is known."""
    if outside.min() >= inside.max() or inside.min() > outside.max():
        return Interval(value, value, value)  # as every resample
    if inside.size + outside.size <= MANY:
        return bootstrap_interval(conservative_auc, inside, outside, resamples=RESAMPLES)
    found = delong_interval(inside, outside)
    ties = found.value - value  # counted half there, and not here
    return Interval(value, max(0.0, found.low - ties), max(0.0, found.high - ties))


def measured(run: Evaluated, eps: float, out_set: str) -> Iterator[tuple[Form, Interval]]:
    """AUC, AAUC and GAUC, as far as they are there."""
    if (eps, out_set) in run.cells:
        aucs = run.cells[eps, out_set].aucs
        for form, value in zip(FORMS, (aucs.clean, aucs.adversarial, aucs.guaranteed), strict=True):
            if value is not None:
                outside = getattr(run.outside[eps, out_set], form.column)
                yield form, interval(run.inside.score, outside[outside == outside], value)  # NaN: not attacked


# ---- over the radius -------------------------------------------------------------------------------------------------


def dots(runs: Sequence[Evaluated], eps: float) -> Picture:
    """One radius for each set: a line for each run, a dot for each form."""
    sets, colour = out_sets(runs), colours(runs)
    signs = [
        [Sign(f"{form.auc}, {form.word}", "#888888", marker=form.marker, hollow=form is FORMS[0]) for form in FORMS]
    ]
    names = max(len(run.name) for run in runs)
    left = min(3.0, 0.4 + 0.13 * names)
    titles = [f"{called(name)}, ε = {radii(runs, name)[0]:g}" for name in sets]
    figure, axes = panels(titles, 0.4 + 0.5 * len(runs), key_height(signs), left, 0.5)
    key(figure, signs)
    for panel, name in zip(axes, sets, strict=True):
        for row, run in enumerate(runs):
            panel.axhline(row, color=FAINT, linewidth=1, zorder=0)
            for shift, (form, found) in enumerate(measured(run, radii(runs, name)[0], name)):
                y = row + 0.22 * (shift - 1)
                panel.plot([found.low, found.high], [y, y], color=colour[run.name], linewidth=3, solid_capstyle="butt")
                _mark(panel, found.value, y, form, colour[run.name], f"{run.name} {form.auc}")
        panel.set_ylim(len(runs) - 0.4, -0.6)
        panel.set_yticks(range(len(runs)), [plain(run.name) for run in runs])
        panel.set_xlim(-0.03, 1.03)
        panel.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1] if left < NARROW else [0, 0.5, 1]))
        panel.xaxis.set_major_formatter(PercentFormatter(1, 0, symbol=" %"))
    caption = (
        "How well each run tells the in-distribution from each out-set: as the images are (AUC), where an attack "
        f"changes each pixel by at most ε (AAUC), and whatever an attacker does within ε (GAUC). Bars: {INTERVALS}."
    )
    return Picture("aucs", f"AUC, AAUC and GAUC at ε = {eps:g}", caption, figure)


def lines(runs: Sequence[Evaluated]) -> Picture:
    """Several radii: a colour for each run, a style for each form."""
    sets, colour = out_sets(runs), colours(runs)
    signs = [_runs_key(runs), _forms_key()]
    figure, axes = panels([called(name) for name in sets], 3.2, key_height(signs))
    key(figure, signs)
    for panel, name in zip(axes, sets, strict=True):
        for run in runs:
            found = {eps: dict(measured(run, eps, name)) for eps in radii([run], name)}
            for form in FORMS:
                at = [eps for eps in found if form in found[eps]]
                low, high = ([getattr(found[eps][form], end) for eps in at] for end in ("low", "high"))
                panel.fill_between(at, low, high, color=colour[run.name], alpha=0.18, linewidth=0)
                _curve(
                    panel, at, [found[eps][form].value for eps in at], form, colour[run.name], f"{run.name} {form.auc}"
                )
        _shares(panel)
        panel.xaxis.set_major_locator(FixedLocator(radii(runs, name)) if len(radii(runs, name)) < 6 else MaxNLocator(5))
        panel.margins(x=0.08)
        panel.set_xlabel("radius ε of the attacker", fontsize=SMALL)
    caption = (
        "How well each run tells the in-distribution from each out-set, over the radius ε by which an attacker may "
        f"change each pixel: clean (AUC), attacked (AAUC), guaranteed (GAUC). Bands: {INTERVALS}."
    )
    return Picture("aucs", "AUC, AAUC and GAUC over the radius", caption, figure)


# ---- over the quantile -----------------------------------------------------------------------------------------------


def trade_off(runs: Sequence[Evaluated], eps: float) -> list[Picture]:
    """What guarantees cost: nothing, unless there are GOOD runs of one recipe with at least two quantiles."""
    recipes: dict[str, dict[str, float]] = {}
    for good_run in (run for run in runs if run.recipe.get("method") == "good"):
        recipes.setdefault(str(good_run.recipe.get("name")), {})[good_run.name] = good_run.recipe["quantile"]
    good = max(recipes.values(), key=lambda quantiles: len(set(quantiles.values())), default={})
    mine = [run for run in runs if run.name in good]
    if len(set(good.values())) < 2:
        return []
    sets, colour = out_sets(mine, eps), colours(runs)
    signs = [_forms_key()]
    figure, axes = panels([called(name) for name in sets], 3.2, key_height(signs))
    key(figure, signs)
    for panel, name in zip(axes, sets, strict=True):
        found = {run.name: dict(measured(run, eps, name)) for run in mine}
        for form in FORMS:
            here = {run.name: found[run.name][form] for run in mine if form in found[run.name]}
            at = sorted({good[run] for run in here})
            means = [fmean(here[run].value for run in here if good[run] == quantile) for quantile in at]
            panel.plot(at, means, color="#888888", linestyle=form.style, linewidth=2, label=form.auc)
            for run, each in here.items():
                panel.plot([good[run]] * 2, [each.low, each.high], color=colour[run], linewidth=3)
                _mark(panel, good[run], each.value, form, colour[run], f"{run} {form.auc}")
        _shares(panel)
        panel.xaxis.set_major_formatter(PercentFormatter(1, 0, symbol=" %"))
        panel.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        panel.margins(x=0.08)
        panel.set_xlabel("quantile of GOOD", fontsize=SMALL)
    caption = (
        "What a guarantee costs: clean, attacked and guaranteed AUC of the GOOD runs over the share of out-images "
        f"that training guarantees (their quantile), at ε = {eps:g}. Bars: {INTERVALS}."
    )
    return [Picture("trade-off", "Clean against guaranteed AUC over the quantile", caption, figure)]


# ---- the looks of both -----------------------------------------------------------------------------------------------


def _runs_key(runs: Sequence[Evaluated]) -> list[Sign]:
    colour = colours(runs)
    return [Sign(run.name, colour[run.name], "-") for run in runs]


def _forms_key() -> list[Sign]:
    return [Sign(f"{form.auc}, {form.word}", "#555555", form.style, form.marker, form is FORMS[0]) for form in FORMS]


def _curve(panel: Axes, x: Sequence[float], y: Sequence[float], form: Form, colour: str, label: str) -> None:
    panel.plot(
        x, y, color=colour, linestyle=form.style, linewidth=2.5, marker=form.marker, markersize=8, markeredgewidth=2,
        markerfacecolor="white" if form is FORMS[0] else colour, label=label, clip_on=False,
    )  # fmt: skip


def _mark(panel: Axes, x: float, y: float, form: Form, colour: str, label: str) -> None:
    _curve(panel, [x], [y], form, colour, label)


def _shares(panel: Axes) -> None:
    panel.set_ylim(-0.03, 1.03)
    panel.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    panel.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    panel.grid(axis="y", color=FAINT, linewidth=1)
