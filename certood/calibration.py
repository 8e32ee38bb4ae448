"""A threshold with a statement that holds for finitely many images, and the file that keeps it beside the weights.

Let s_(1) <= ... <= s_(n) be the scores of n in-distribution images, drawn independently as later images will be, and
accept what scores t = s_(k) or more. With F the distribution of scores, the share of later images that is rejected is
F(t-) = P(S < s_(k)), which is at most the k-th smallest of n uniform numbers, a Beta(k, n - k + 1) variable: exactly
that one where F is continuous, less where scores are tied. (Wilks 1941, on tolerance limits; it inverts the binomial
test of Clopper and Pearson 1934.) Hence, for k = floor((n + 1)(1 - a)):

- over all calibrations, a later image is accepted with probability at least 1 - k/(n + 1) >= a;
- with confidence 1 - alpha, this calibration accepts at least the alpha-quantile of Beta(n - k + 1, k) of later images.

Both are exact, for every n and every detector. Neither says anything of images from elsewhere.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from certood.contents import check
from certood.errors import GuardError
from certood.files import read_json, write_text

ALPHA = 0.01  # the statement may fail for so many of all calibrations
FILE = "calibration.json"
FORMAT = 2


@final
@dataclass(frozen=True)
class Calibration:
    """A threshold, and what is known of it."""

    threshold: float  # log-odds; a score at or above it is accepted
    accept: float  # share of in-distribution images that was asked for
    images: int
    rank: int  # the threshold is the score of this rank from below, counted from 1
    at_least: float  # share of later images that is accepted, with confidence 1 - ALPHA; rounded down
    weights: str  # digest of the weights whose scores these were
    scores: str  # digest of the scores

    @property
    def confidence(self) -> float:
        """The threshold as a confidence, for the eye."""
        return 1 / (1 + math.exp(-self.threshold)) if self.threshold > -700 else 0.0

    @property
    def statement(self) -> str:
        share = math.floor(1000 * self.at_least) / 10
        return (
            f"with {100 * (1 - ALPHA):g} % confidence at least {share:.1f} % of new images are accepted that come from "
            f"where the {self.images:,} calibration images came from"
        )

    @classmethod
    def of(cls, scores: NDArray[np.float64], accept: float, weights: str) -> "Calibration":
        """The largest threshold that accepts at least the share `accept` of later images."""
        if not isinstance(accept, (int, float)) or isinstance(accept, bool) or not 0 < accept < 1:
            raise GuardError(
                f"accept is a share between 0 and 1, not {accept!r}: 0.95 rejects one in twenty of your own"
            )
        scores = np.asarray(scores, np.float64)
        if np.isnan(scores).any():
            raise GuardError("a calibration image has no score: the network answers NaN")
        rejected = 1 - Fraction(repr(float(accept)))  # exact, as it is written
        count = len(scores)
        rank = math.floor((count + 1) * rejected)
        if rank < 1:
            raise GuardError(
                f"{count} images are too few to accept {accept:.6g} of later ones: give at least "
                f"{math.ceil(1 / rejected) - 1} images that training has not seen, thousands for a sharp statement"
            )
        ordered = np.sort(scores)
        threshold = float(ordered[rank - 1])
        if not math.isfinite(threshold):
            raise GuardError(f"the threshold would be {threshold}: train the network again")
        digest = hashlib.sha256(ordered.tobytes()).hexdigest()
        return cls(threshold, float(accept), count, rank, guaranteed_share(count, rank), weights, digest)

    def write(self, folder: Path) -> None:
        content = {"format": FORMAT} | asdict(self) | {"statement": self.statement}
        write_text(folder / FILE, json.dumps(content | {"sha256": _digest(content)}, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path, weights: str) -> "Calibration | None":
        """That of a run folder, None if there is none; one of other weights is refused."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            calibration = cls._checked(read_json(path))
        except (OSError, ValueError, RecursionError) as error:
            raise GuardError(f"{path} is no calibration ({error}); delete it and calibrate again") from None
        if calibration.weights != weights:
            raise GuardError(
                f"{path} was made for other weights ({calibration.weights[:12]}..., these are {weights[:12]}...); "
                f"delete it and calibrate again"
            )
        return calibration

    @classmethod
    def _checked(cls, content: Any) -> "Calibration":
        check(content, {"format": int})
        if content["format"] != FORMAT:
            raise ValueError(f"it is of format {content['format']}, not {FORMAT}")
        check(content, {**cls.__annotations__, "statement": str, "sha256": str})
        if content["sha256"] != _digest({name: content[name] for name in content if name != "sha256"}):
            raise ValueError("it was changed since it was written")
        calibration = cls(**{field.name: content[field.name] for field in fields(cls)})
        count, rank = calibration.images, calibration.rank
        if not (1 <= rank <= count <= 10**12 and 0 < calibration.accept < 1):
            raise ValueError(f"rank {rank} of {count} images, accept {calibration.accept}")
        if (
            abs(calibration.at_least - guaranteed_share(count, rank)) > 2e-6
            or content["statement"] != calibration.statement
        ):
            raise ValueError("its statement does not follow from its numbers")
        return calibration


def _digest(content: dict[str, Any]) -> str:
    """Of all numbers and words: a threshold follows from scores that are not kept, and could be changed unseen."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def guaranteed_share(count: int, rank: int) -> float:
    """The ALPHA-quantile of Beta(count - rank + 1, rank), rounded down to a millionth.

    A smaller share p passes Clopper and Pearson's test as well: P(Binomial(count, p) >= count - rank + 1) <= alpha.
    """
    from scipy.special import betaincinv

    return max(0, math.floor(1e6 * float(betaincinv(count - rank + 1, rank, ALPHA)) - 1e-3)) / 1e6
