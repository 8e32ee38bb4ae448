"""What a network can answer on a whole `Box`. Importing this package fills the table of rules that `Box` looks up."""

from certood.bounds import arithmetic as arithmetic
from certood.bounds import ulps as ulps
from certood.bounds.affine import keeping
from certood.bounds.confidence import confidence_upper, logit_gaps, max_gap, score_lower, score_upper
from certood.bounds.interval import rule
from certood.bounds.precision import full_precision, plain_sums
from certood.boxes import Box

__all__ = [
    "Box",
    "confidence_upper",
    "full_precision",
    "keeping",
    "logit_gaps",
    "max_gap",
    "plain_sums",
    "rule",
    "score_lower",
    "score_upper",
]
