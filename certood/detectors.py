"""The one seam: everything that attacks, evaluates or reports knows a detector by these three functions alone."""

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor, nn

from certood.bounds import Box, score_upper


class Detector(ABC):
    """A classifier whose confidence says whether an image belongs to its classes.

    score(x) = logit(max_k p_k(x)), larger = more in-distribution;   score(z) <= score_upper(box)  for all z in box.
    """

    @abstractmethod
    def log_probs(self, x: Tensor) -> Tensor:
        """log p_k(x) in float64.  # [N, K]"""

    @abstractmethod
    def score_upper(self, box: Box) -> Tensor:
        """A guaranteed upper bound of the score over the box, +inf where there is none.  # [N]"""

    @final
    def score(self, x: Tensor) -> Tensor:
        """Log-odds of the top class in float64: ranks like the confidence and does not saturate near 1.  # [N]"""
        log_probs = self.log_probs(x)
        top, label = log_probs.max(1)
        others = log_probs.scatter(1, label[:, None], -torch.inf).logsumexp(1)
        return top - others


@final
class Softmax(Detector):
    """The softmax confidence of a network that answers with logits."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def log_probs(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits.double().log_softmax(1)

    def score_upper(self, box: Box) -> Tensor:
        return score_upper(self.network, box)
