"""All that shows images or speaks of their classes: samples, classes, a batch, the worst."""

from collections.abc import Sequence

from certood.report.evaluated import Evaluated
from certood.report.parts import Picture
from certood.report.per_class import per_class
from certood.report.samples import samples
from certood.report.split import split
from certood.report.worst import worst


def pictures(runs: Sequence[Evaluated], eps: float | None) -> list[Picture]:
    """Of runs that share one in-distribution, at one radius. None: there are no out-sets."""
    if eps is None:
        return []
    return [*samples(runs, eps), *per_class(runs, eps), *split(runs, eps), *worst(runs, eps)]
