"""The one seam: everything that attacks, evaluates or reports knows a detector by these three functions alone."""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn

from certood.bounds import Box, logit_gaps, score_lower, score_upper
from certood.discriminators import Discriminated
from certood.mixtures import JointDensity

# What float64 may add to a score, for each unit of the numbers it is made of: 2^8 roundings of 2^-53.
ROUNDING = 2.0**-45


class Detector(ABC):
    """A classifier whose confidence says whether an image belongs to its classes.

    score(x) = logit(max_k p_k(x)), larger = more in-distribution;

    score_lower(box) <= score(z) <= score_upper(box)  for all z in box.
    """

    sound: bool = False
    """do these inequalities hold for scores as they are executed in float32, or only up to its rounding?"""

    @abstractmethod
    def log_probs(self, x: Tensor) -> Tensor:
        """log p_k(x) in float64.  # [N, K]"""

    @abstractmethod
    def score_upper(self, box: Box) -> Tensor:
        """A guaranteed upper bound of the score over the box, +inf where there is none.  # [N]"""

    def score_lower(self, box: Box) -> Tensor:
        """A guaranteed lower bound of the score over the box, -inf where there is none.  # [N]"""
        return box.lower.new_full((len(box),), -torch.inf, dtype=torch.float64)

    @final
    def score(self, x: Tensor) -> Tensor:
        """Log-odds of the top class in float64: ranks like the confidence and does not saturate near 1.  # [N]"""
        return log_odds(self.log_probs(x))


def log_odds(log_probs: Tensor) -> Tensor:
    """log p_k - log(1 - p_k) of the top class k, without taking p from 1.  # [N]"""
    top, label = log_probs.max(1)
    return top - log_probs.scatter(1, label[:, None], -torch.inf).logsumexp(1)


@final
class Softmax(Detector):
    """The softmax confidence of a network that answers with logits; `sound=True` rounds its bounds outward."""

    def __init__(self, network: nn.Module, sound: bool = False) -> None:
        self.network, self.sound = network, sound

    def log_probs(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits.double().log_softmax(1)

    def score_upper(self, box: Box) -> Tensor:
        return score_upper(self.network, box, self.sound)

    def score_lower(self, box: Box) -> Tensor:
        return score_lower(self.network, box, self.sound)


@final
class Mixture(Detector):
    """CCU: two mixtures of Gaussians bound the confidence far from all in-images (Meinke and Hein 2020, cor. 3.1).

        conf <= (1 + K b) / (K (1 + b)):  the log-odds are at most log(1 + K b) - log(K - 1)

        b(x, R) = max p(z|i) / min p(z|o)  over the ball  d_M(z, x) <= R

    An l_inf box lies in such a ball, a large one: `score_upper` is hardly ever below what in-images score. The bounds
    are of float64 and cover its rounding, and the network's does not matter to them: they are always sound.
    """

    sound = True

    def __init__(self, network: JointDensity) -> None:
        self.network = network

    def log_probs(self, x: Tensor) -> Tensor:
        joint: Tensor = self.network(x)
        return joint.log_softmax(1)

    @torch.no_grad()
    def score_upper(self, box: Box) -> Tensor:
        """|z - c|_2 <= |r|_2  =>  d_M(z, c) <= sqrt(lambda_max(C^-1)) |r|_2;  all r = eps: sqrt(d lambda_max) eps"""
        lower, upper = box.lower.flatten(1).double(), box.upper.flatten(1).double()
        reach = self.stretch * ((upper - lower) / 2).norm(dim=1) * (1 + 2.0**-40)
        return self._upper((lower + upper) / 2, reach, torch.maximum(lower.abs(), upper.abs()))

    @torch.no_grad()
    def score_upper_within(self, x: Tensor, distance: float) -> Tensor:
        """Over all images z in [0, 1] with d_M(z, x) <= distance: the guarantee in its own metric.  # [N]"""
        x = x.flatten(1).double()
        return self._upper(x, x.new_full((len(x),), distance), torch.ones_like(x))

    @property
    def stretch(self) -> float:
        """sqrt(lambda_max(C^-1)), from above: no eigenvalue of A A' exceeds the largest sum of a row (Gershgorin)."""
        metric = self.network.metric.double()
        rows = (metric @ metric.T).abs().sum(1)
        return math.sqrt(float(rows.max()) * (1 + 2.0**-50 * len(rows) ** 2))

    def _upper(self, x: Tensor, reach: Tensor, largest: Tensor) -> Tensor:
        """`largest`: |z| at most, pixel by pixel; it decides how far A z may be off as it is executed."""
        model, pixels = self.network, x.shape[1]
        off = (pixels + 2) * 2.0**-52 * (largest @ model.metric.double().abs().T).norm(dim=1)
        y, reach = model.whitened(x), reach + 2 * off
        inside, _, size_inside = model.inside.over_ball(y, reach)
        _, outside, size_outside = model.outside.over_ball(y, reach)
        numbers = size_inside + size_outside + len(model.inside.means) + model.classes + 64
        ratio = inside - outside + ROUNDING * numbers + math.log(model.classes)
        upper = torch.logaddexp(ratio, torch.zeros_like(ratio)) - math.log(model.classes - 1) + ROUNDING * numbers
        return torch.where(upper.isnan(), torch.inf, upper)


@final
class Joint(Detector):
    """ProoD: the discriminator bounds the confidence, whatever the classifier may say.

        conf <= p + (1 - p) / K,  p = sigmoid(g):  the log-odds are at most log(e^g + (1 + e^g) / (K - 1))

    which rises with g, so that an upper bound of g is all that is needed. Errors of float64 in a probability that is
    too small to count (below e^-|g| / K) do not count either: what is added grows with |g|, not with the logits.
    """

    def __init__(self, network: Discriminated, sound: bool = False) -> None:
        self.network, self.sound = network, sound

    def log_probs(self, x: Tensor) -> Tensor:
        log_probs: Tensor = self.network(x)
        return log_probs.log_softmax(1)

    @torch.no_grad()
    def score_upper(self, box: Box) -> Tensor:
        classes = self.network.classes
        g = logit_gaps(self.network.discriminator, box, self.sound)[:, 0, 1].double()  # [N]
        upper = torch.logaddexp(g, torch.logaddexp(g, torch.zeros_like(g)) - math.log(classes - 1))
        if self.sound:
            upper = upper + ROUNDING * (g.abs() + classes + 64)
        return torch.where(upper.isnan(), torch.inf, upper)
