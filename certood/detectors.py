"""The one seam: everything that attacks, evaluates or reports knows a detector by these three functions alone."""

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn

from certood.bounds import Box, score_lower, score_upper


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
