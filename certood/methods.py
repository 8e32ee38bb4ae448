"""What is minimised: one small frozen dataclass a method, losses per sample; the training loop takes the mean, once.

    mean_i in_loss(x_i, y_i) + kappa * mean_j out_loss(x_j; eps)

To add one, see docs/adding_a_method.md: `tests/test_methods.py` holds every method to the same contract.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from certood.attacks import SignAscent, maximise
from certood.bounds import Box, keeping, max_gap
from certood.detectors import Detector, Joint, Mixture, Softmax
from certood.discriminators import Discriminated
from certood.errors import RecipeError
from certood.mixtures import JointDensity


class Method(ABC):
    """Losses see a network that answers with logits; what its confidence is bounded by, `detector` knows."""

    uses_out = True  # whether there is an out-loss at all

    def detector(self, network: nn.Module, sound: bool = False) -> Detector:
        """What a network that this method trains answers with, and what is guaranteed of it."""
        return Softmax(network, sound)

    def in_loss(self, detector: Softmax, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy -log p_y(x), and the log-probabilities it came from.  # [N], [N, K]"""
        log_probs = detector.log_probs(x)
        return -log_probs.gather(1, labels[:, None]).squeeze(1), log_probs

    @abstractmethod
    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        """What an out-distribution image costs, radius eps where the method has one.  # [M]"""

    def losses(
        self, detector: Softmax, x: Tensor, labels: Tensor, x_out: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """in_loss's two and out_loss, in as few passes as the method can do with.  # [N], [N, K], [M]"""
        return *self.in_loss(detector, x, labels), self.out_loss(detector, x_out, eps)


@final
@dataclass(frozen=True)
class Plain(Method):
    """Cross-entropy alone."""

    uses_out = False

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        return x.new_zeros(len(x))


@final
@dataclass(frozen=True)
class OE(Method):
    """Outlier Exposure (Hendrycks et al. 2019): cross-entropy to the uniform answer, -1/K sum_k log p_k(x)."""

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        return cross_entropy_to_uniform(detector, x)


@final
@dataclass(frozen=True)
class CEDA(Method):
    """Confidence Enhancing Data Augmentation (Hein et al. 2019): the log-confidence, max_k log p_k(x)."""

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        return detector.log_probs(x).amax(1)


@final
@dataclass(frozen=True)
class ACET(Method):
    """Adversarial Confidence Enhancing Training: OE's loss at the worst point an attack finds in the box (eq. 11).

    The attack starts at the image and takes `steps` sign steps of 2 eps / (steps + 1) (appendix B).
    """

    steps: int = 40

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        if eps > 0:
            box = Box.around(x, eps)
            ascent = SignAscent("clean", self.steps, step=2 * eps / (self.steps + 1))
            found = maximise(lambda z: cross_entropy_to_uniform(detector, z), box, x, budget=[ascent])
            x = found.points
        return cross_entropy_to_uniform(detector, x)


@final
@dataclass(frozen=True)
class GOOD(Method):
    """Guaranteed Out-Of-distribution Detection with quantile q (eq. 8 to 10).

        L_CUB(x; eps) = log(1 + g^2 / 2),  g = max_{k,l} upper bound of f_k - f_l over |z - x|_inf <= eps

    The floor(q M) samples of the batch with the lowest bounds pay L_CUB(x; eps), the others L_CUB(x; 0). The training
    box is not cut to [0, 1], as in the authors' runs (docs/fidelity.md).
    """

    quantile: float = 1.0
    gather: Callable[[Tensor], tuple[Tensor, slice]] = field(
        default=lambda own: (own, slice(None)), repr=False, compare=False
    )
    """where the out-batch is shared: the bounds of all of it, and which of them are one's own"""

    def __post_init__(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise RecipeError(f"the quantile is a share between 0 and 1, not {self.quantile}")

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        if eps == 0 or self.quantile == 0:  # no bound is needed
            return confidence_upper_bound_loss(clean_gap(detector.network(x)))
        gaps, hard = self.easy_gaps(detector, x, eps)
        if hard.any():
            gaps = gaps.masked_scatter(hard, clean_gap(detector.network(x[hard])))
        return confidence_upper_bound_loss(gaps)

    def losses(
        self, detector: Softmax, x: Tensor, labels: Tensor, x_out: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The hard out-images go through the network together with the in-images."""
        if eps == 0 or self.quantile in (0, 1):
            return super().losses(detector, x, labels, x_out, eps)
        gaps, hard = self.easy_gaps(detector, x_out, eps)
        logits: Tensor = detector.network(torch.cat([x, x_out[hard]]))
        inside = self.in_loss(Softmax(Given(logits[: len(x)])), x, labels)
        return *inside, confidence_upper_bound_loss(gaps.masked_scatter(hard, clean_gap(logits[len(x) :])))

    def easy_gaps(self, detector: Softmax, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """The bounds of the samples that pay for them, 0 for the others, and which these are.  # [M], [M] bool"""
        if self.quantile == 1:
            gaps = self.bounds(detector, x, eps)
            return gaps, torch.zeros_like(gaps, dtype=torch.bool)
        with torch.no_grad(), keeping(len(x)) as kept:
            bounds = self.bounds(detector, x, eps)
        easy, gaps = self.guaranteed(bounds), torch.zeros_like(bounds)
        if easy.any():
            with kept.again(easy.nonzero().squeeze(1)):
                gaps = gaps.masked_scatter(easy, self.bounds(detector, x[easy], eps))
        return gaps, ~easy

    def bounds(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        return max_gap(detector.network, Box.around(x, eps, cut=False))  # [M]

    def guaranteed(self, bounds: Tensor) -> Tensor:
        """The floor(q M) lowest of the whole out-batch, as a mask over one's own.  # [M] bool"""
        if self.quantile == 1:
            return torch.ones_like(bounds, dtype=torch.bool)
        everywhere, own = self.gather(bounds)
        count = math.floor(self.quantile * len(everywhere) + 1e-9)  # 0.29 * 100 is 28.999...
        mask = torch.zeros_like(everywhere, dtype=torch.bool)
        mask[everywhere.argsort(stable=True)[:count]] = True
        return mask[own]


@final
@dataclass(frozen=True)
class CCU(Method):
    """Certified Certain Uncertainty (Meinke and Hein 2020): the likelihood of a joint density, log p(x, y).

        in-loss -1/2 log p(x, y),    out-loss -1/2 1/K sum_k log p(x, k)

    The network's logits are log p(x, k) (`certood.mixtures`): cross-entropies and likelihood of the mixtures in one.
    """

    def detector(self, network: nn.Module, sound: bool = False) -> Detector:
        return Mixture(cast(JointDensity, network))

    def in_loss(self, detector: Softmax, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        joint = detector.network(x)  # [N, K]
        return -joint.gather(1, labels[:, None]).squeeze(1) / 2, joint.log_softmax(1)

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        joint: Tensor = detector.network(x)
        return -joint.mean(1) / 2


@final
@dataclass(frozen=True)
class Discriminator(Method):
    """ProoD's first training: log(1 + exp(-g)) inside, log(1 + exp(g)) outside, there on the upper bound over the box.

    All in-images are of the class "inside", whose logit is g; the other logit is 0. The box is not cut, as in GOOD.
    """

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        out = detector.network(Box.around(x, eps, cut=False) if eps > 0 else x)  # [M, 2]
        return softplus((out.upper if eps > 0 else out)[:, 0])


@final
@dataclass(frozen=True)
class ProoD(Method):
    """ProoD's second training (Meinke, Bitterwolf, Hein 2022): OE's losses on the joint model, discriminator fixed."""

    def detector(self, network: nn.Module, sound: bool = False) -> Detector:
        return Joint(cast(Discriminated, network), sound)

    def out_loss(self, detector: Softmax, x: Tensor, eps: float) -> Tensor:
        return cross_entropy_to_uniform(detector, x)


def cross_entropy_to_uniform(detector: Softmax, x: Tensor) -> Tensor:
    return -detector.log_probs(x).mean(1)  # [M]


def clean_gap(logits: Tensor) -> Tensor:
    """max_{k,l} f_k - f_l at the image itself: the bound for eps = 0."""
    return logits.amax(1) - logits.amin(1)  # [M]


@final
class Given(nn.Module):
    """A network that has answered already."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor) -> Tensor:
        return self.logits


def confidence_upper_bound_loss(gap: Tensor) -> Tensor:
    """log(1 + g^2 / 2), which is 2 log g - log 2 where g is so large that its square may overflow."""
    large = gap > 1e9  # there the two agree to the last bit
    far = 2 * torch.where(large, gap, 1.0).log() - math.log(2)
    return torch.where(large, far, torch.log1p(torch.where(large, 0.0, gap).square() / 2))


METHODS: dict[str, type[Method]] = {
    **{"plain": Plain, "oe": OE, "ceda": CEDA, "acet": ACET, "ccu": CCU, "good": GOOD, "prood": ProoD},
    "discriminator": Discriminator,
}
