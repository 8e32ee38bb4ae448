"""The three columns of an out-set that is attacked and certified."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from certood.errors import MetricError
from certood.metrics.columns import Floats, column_of, scores_of

Value = TypeVar("Value")


@final
@dataclass(frozen=True)
class Forms(Generic[Value]):
    """One metric on the three columns of an out-set: AUC, AAUC and GAUC of the paper.

    >>> from certood.metrics import auc
    >>> Forms.of(lambda out: auc([1.0, 3.0], out), [0.0, 0.0], [2.0, np.nan], [2.0, np.inf])
    Forms(clean=1.0, adversarial=0.5, guaranteed=0.25, attacked=1)
    """

    clean: Value
    adversarial: Value | None  # None where no row was attacked
    guaranteed: Value
    attacked: int  # rows that `adversarial` is taken over: fewer than of the others, so it need not lie between them

    @classmethod
    def of(
        cls, metric: Callable[[Floats], Value], score: ArrayLike, adversarial: ArrayLike, certified: ArrayLike
    ) -> Self:
        """`metric(column)` for each; NaN in `adversarial` means not attacked. `partial(auc, in_scores)` is a metric."""
        clean, guaranteed = scores_of("score", score), scores_of("certified", certified)
        found = column_of("adversarial", adversarial)
        if not clean.shape == found.shape == guaranteed.shape:
            raise MetricError(
                f"score, adversarial and certified have {clean.size}, {found.size} and {guaranteed.size} rows; "
                "give one row per sample, NaN in adversarial where a sample was not attacked"
            )
        found = found[~np.isnan(found)]
        return cls(metric(clean), metric(found) if found.size else None, metric(guaranteed), found.size)
