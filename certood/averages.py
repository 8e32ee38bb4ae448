"""Systems over several seeds: mean and standard deviation of every number of a table, as Markdown and CSV. No torch."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from certood.paper import NAMES
from certood.summary import Summary

FORMS = ("AUC", "AAUC", "GAUC")


@final
@dataclass(frozen=True)
class Average:
    """In percent; the deviation is that of a sample, and there is none of a single seed. Whole numbers are counts."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, shares: Sequence[float | None]) -> "Average | None":
        """None where one seed was not measured: a mean over others would be of other runs than the rest of its row."""
        percent = [100 * share for share in shares if share is not None]
        if not percent or len(percent) < len(shares):
            return None
        return cls(statistics.fmean(percent), statistics.stdev(percent) if len(percent) > 1 else None)

    def __str__(self) -> str:
        if isinstance(self.mean, int):
            return str(self.mean)
        return f"{self.mean:.1f}" + (f" ± {self.deviation:.1f}" if self.deviation is not None else "")


SEEDS = "seeds"
Averages = dict[tuple[str, float, str, str], Average | None]  # system, eps, out-set, form


def averages(systems: Mapping[str, Sequence[Summary]]) -> Averages:
    """Accuracy stands under eps 0 and no out-set; the AUCs of a set that one seed lacks are left out."""
    found: Averages = {}
    for name, runs in systems.items():
        found[name, 0.0, "", SEEDS] = Average(len(runs), None)
        found[name, 0.0, "", "accuracy"] = Average.of([run.accuracy for run in runs])
        cells = [{(cell.eps, cell.out_set): cell for cell in run.cells} for run in runs]
        for eps, out_set in cells[0]:
            if all((eps, out_set) in of_run for of_run in cells):
                aucs = [of_run[eps, out_set].aucs for of_run in cells]
                found[name, eps, out_set, "AUC"] = Average.of([each.clean for each in aucs])
                found[name, eps, out_set, "AAUC"] = Average.of([each.adversarial for each in aucs])
                found[name, eps, out_set, "GAUC"] = Average.of([each.guaranteed for each in aucs])
    return found


def as_markdown(found: Averages) -> str:
    """A table for each radius, its systems in rows, AUC, AAUC and GAUC of an out-set in one cell each."""
    systems = list(dict.fromkeys(name for name, *_ in found))
    parts = []
    for eps in sorted({eps for _, eps, out_set, _ in found if out_set}):
        out_sets = list(dict.fromkeys(out_set for _, at, out_set, _ in found if at == eps and out_set))
        heads = [f"{NAMES.get(out_set, out_set)} {form}" for out_set in out_sets for form in FORMS]
        lines = [f"eps {eps:g}", "", _line(["system", SEEDS, "accuracy", *heads]), _line(["---"] * (3 + len(heads)))]
        for name in systems:
            keys = [
                (name, 0.0, "", SEEDS),
                (name, 0.0, "", "accuracy"),
                *((name, eps, out_set, form) for out_set in out_sets for form in FORMS),
            ]
            lines.append(_line([name, *(str(found.get(key) or "-") for key in keys)]))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_csv(found: Averages) -> str:
    with io.StringIO() as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("system", "eps", "out_set", "number", "mean", "deviation"))
        for (name, eps, out_set, form), average in found.items():
            if average is not None:
                deviation = "" if average.deviation is None else f"{average.deviation:.4f}"
                writer.writerow((name, f"{eps:g}", out_set, form, f"{average.mean:.4f}", deviation))
        return text.getvalue()
