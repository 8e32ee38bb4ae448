"""All that shows images or speaks of their classes: the teaser, samples, classes, the worst."""

from collections.abc import Sequence

from certood.report.choices import radius
from certood.report.evaluated import Evaluated
from certood.report.parts import Picture
from certood.report.per_class import per_class
from certood.report.samples import samples
from certood.report.teaser import teaser
from certood.report.worst import worst


def pictures(runs: Sequence[Evaluated]) -> list[Picture]:
    """Of runs that share one in-distribution, at the radius of their recipes."""
    eps = radius(runs)
    if eps is None:
        return []
    return [*teaser(runs, eps), *samples(runs, eps), *per_class(runs, eps), *worst(runs, eps)]
