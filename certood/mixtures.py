"""CCU's densities (Meinke and Hein 2020): two mixtures of isotropic Gaussians, one of in-images and one of others, in

    d_M(x, x') = |C^(-1/2) (x - x')|,    C the covariance of the in-images

Far from all in-images the second outweighs the first, and the joint model then answers uniformly. Everything here is
float64, which convolutions need not be: the densities of 784 pixels span thousands of orders of magnitude.
"""

import math
from typing import final

import torch
from torch import Tensor, nn

FLOOR = 1e-6  # eigenvalues of C are at least this share of the largest
ROUNDS = 10  # of k-means, then of expectation maximisation
APART = 4.0  # every variance of the second mixture is at least so many times the largest of the first


@final
class Gaussians(nn.Module):
    """p(y) = sum_k a_k N_k exp(-|y - mu_k|^2 / (2 s_k^2)),    N_k = (2 pi s_k^2)^(-d/2)"""

    def __init__(self, components: int, dimension: int) -> None:
        super().__init__()
        self.means = nn.Parameter(torch.zeros(components, dimension))
        self.log_deviations = nn.Parameter(torch.zeros(components))  # log s_k
        self.log_weights = nn.Parameter(torch.zeros(components))  # log a_k, up to a constant

    def log_density(self, y: Tensor) -> Tensor:
        """# [N, d] -> [N]"""
        return self.terms(self.squared_distances(y)).logsumexp(1)

    def squared_distances(self, y: Tensor) -> Tensor:
        means = self.means.double()
        products = torch.addmm(means.square().sum(1), y, means.T, alpha=-2)
        return (products + y.square().sum(1, keepdim=True)).clamp(min=0)  # [N, k]

    def terms(self, squared: Tensor) -> Tensor:
        """log of each summand, from |y - mu_k|^2.  # [N, k]"""
        return self.peaks() - squared / (2 * (2 * self.log_deviations.double()).exp())

    def peaks(self) -> Tensor:
        """log a_k N_k  # [k]"""
        widths = self.log_deviations.double() + math.log(2 * math.pi) / 2
        return self.log_weights.double().log_softmax(0) - self.means.shape[1] * widths

    def over_ball(self, y: Tensor, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds of log p over |y' - y| <= reach: most, least; and how large the numbers are whose rounding counts.

        max(|y - mu_k| - reach, 0) <= |y' - mu_k| <= |y - mu_k| + reach.  # [N, d], [N] -> [N] each
        """
        means, dimension = self.means.double(), y.shape[1]
        sizes = y.norm(dim=1, keepdim=True) + reach[:, None] + means.norm(dim=1)  # [N, k]
        error = (dimension + 16) * 2.0**-50 * sizes.square()  # of a squared distance, as it is computed
        squared = self.squared_distances(y)
        near = ((squared - error).clamp(min=0).sqrt() - reach[:, None]).clamp(min=0)
        far = ((squared + error).sqrt() + reach[:, None]).square() + error
        nearest, farthest = self.terms((near.square() - error).clamp(min=0)), self.terms(far)
        widths = self.log_deviations.double().abs() + 1
        size = self.log_weights.double().log_softmax(0).abs().amax() + dimension * widths.amax()
        return nearest.logsumexp(1), farthest.logsumexp(1), 2 * size + (farthest - self.peaks()).abs().amax(1)


@final
class JointDensity(nn.Module):
    """Answers with log p(x, y), in float64, for a classifier with answers p_net(y|x):

        p(x, y) = (p_net(y|x) p(x|i) + p(x|o) / K) / 2

    As logits these are CCU's confidences, since p(y|x) is p(x, y) normalised over y.
    """

    def __init__(self, classifier: nn.Module, components: int, dimension: int, classes: int) -> None:
        super().__init__()
        self.classifier, self.classes = classifier, classes
        self.metric = nn.Buffer(torch.zeros(dimension, dimension))  # A with A'A = C^-1, so that d_M(x, 0) = |A x|
        self.inside, self.outside = Gaussians(components, dimension), Gaussians(components, dimension)

    def forward(self, x: Tensor) -> Tensor:
        classes = self.classifier(x).double().log_softmax(1)  # [N, K]
        y = self.whitened(x)
        inside, outside = self.inside.log_density(y)[:, None], self.outside.log_density(y)[:, None]
        return torch.logaddexp(classes + inside, outside - math.log(self.classes)) - math.log(2)

    def whitened(self, x: Tensor) -> Tensor:
        """A x  # [N, ...] -> [N, d]"""
        y: Tensor = x.flatten(1).double() @ self.metric.double().T
        return y

    @torch.no_grad()
    def keep_apart(self) -> None:
        """After each step: the second mixture stays the wider one, or nothing could be said about far away."""
        least = self.inside.log_deviations.max() + math.log(APART) / 2
        self.outside.log_deviations.clamp_(min=least)


@torch.no_grad()
def fit(joint: JointDensity, inside: Tensor, outside: Tensor, draw: torch.Generator) -> None:
    """Metric and mixtures from augmented images of both sides.  # [N, C, H, W] each"""
    joint.metric.copy_(metric_of(inside.flatten(1).double()))
    for mixture, images in ((joint.inside, inside), (joint.outside, outside)):
        fit_mixture(mixture, joint.whitened(images), draw)
    joint.keep_apart()


def metric_of(x: Tensor) -> Tensor:
    """A with A'A = C^-1: principal axes of the images, each divided by its standard deviation.  # [N, d] -> [d, d]"""
    centred = x - x.mean(0)
    variances, axes = torch.linalg.eigh(centred.T @ centred / len(x))
    floored = variances.clamp(min=FLOOR * float(variances[-1]))
    metric: Tensor = (axes / floored.sqrt()).T
    return metric


@torch.no_grad()
def fit_mixture(mixture: Gaussians, y: Tensor, draw: torch.Generator) -> None:
    """k-means from random images, then expectation maximisation; in the end all variances become their mean."""
    components, dimension = mixture.means.shape
    mixture.means.copy_(y[torch.randperm(len(y), generator=draw)[:components].repeat(components)[:components]])
    lengths = y.square().sum(1)  # [N]
    for number in range(2 * ROUNDS):
        squared = mixture.squared_distances(y)
        if number < ROUNDS:
            shares = torch.zeros_like(squared).scatter_(1, squared.argmin(1, keepdim=True), 1.0)
        else:
            shares = mixture.terms(squared).softmax(1)  # [N, k]
        members = shares.sum(0).clamp(min=1e-6)
        there = members > 1e-3  # who has lost all members stays where it is
        means = shares.T @ y / members[:, None]
        variances = (shares.T @ lengths / members - means.square().sum(1)) / dimension
        everywhere = float((shares * squared).sum()) / len(y) / dimension
        variances = torch.where(there, variances, everywhere).clamp(min=1e-3 * everywhere)
        mixture.means.copy_(torch.where(there[:, None], means, mixture.means.double()))
        mixture.log_deviations.copy_(variances.log() / 2)
        mixture.log_weights.copy_(members.log())
    mean = (2 * mixture.log_deviations.double()).exp().mean()
    mixture.log_deviations.fill_(float(mean.log() / 2))
