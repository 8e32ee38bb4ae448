"""Mixture (CCU) and Joint (ProoD): their bounds against formulas, and against what is executed in float32."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import generator, points
from torch import Tensor

from certood import discriminators, networks
from certood.attacks import BUDGETS, maximise
from certood.bounds import Box
from certood.detectors import Detector, Joint, Mixture
from certood.discriminators import Discriminated
from certood.mixtures import JointDensity, fit

CLASSES = 4


def images(seed: int, count: int) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=generator(seed))


def mixture(seed: int = 0) -> Mixture:
    """In-images are dark, others bright; the classifier is sure of what it says."""
    torch.manual_seed(seed)
    network = networks.build("XS", 1, 8, CLASSES)
    with torch.no_grad():
        network[-1].weight.mul_(30)
    model = JointDensity(network, 3, 64, CLASSES)
    fit(model, images(seed, 500) / 3, images(seed + 1, 500), generator())
    return Mixture(model.requires_grad_(False))


def joint(seed: int = 0, sharp: float = 30.0, sound: bool = True) -> Joint:
    torch.manual_seed(seed)
    model = Discriminated(networks.build("XS", 1, 8, CLASSES), discriminators.build("DS", 1, 8), CLASSES)
    with torch.no_grad():
        model.classifier[-1].weight.mul_(sharp)
    model.fix(3.0)
    return Joint(model.requires_grad_(False), sound)


def exceeds(detector: Detector, box: Box, seed: int = 0) -> bool:
    """Does any of many points score above the bound, or what an attack finds?"""
    upper = detector.score_upper(box)
    found = maximise(detector.score, box, box.project(box.centre), budget=BUDGETS["quick"], seed=seed).scores
    tried = [detector.score(z) for z in points(box, 20, seed)] + [found]
    return any(bool((score > upper).any()) for score in tried)


# ---- what is executed never exceeds the bound, not by one bit --------------------------------------------------------


@pytest.mark.parametrize("eps", [0.0, 1e-4, 0.01, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_joint_is_sound(seed: int, eps: float) -> None:
    assert not exceeds(joint(seed), Box.around(images(seed + 5, 6), eps), seed)


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_mixture_is_sound(seed: int, eps: float) -> None:
    x = torch.cat([images(seed + 5, 3) / 3, images(seed + 6, 3), torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)])
    assert not exceeds(mixture(seed), Box.around(x, eps), seed)


def test_both_say_that_they_are_sound() -> None:
    assert mixture().sound
    assert joint().sound
    assert not joint(sound=False).sound


# ---- Joint -----------------------------------------------------------------------------------------------------------


@given(st.floats(-60, 60))
def test_the_bound_of_joint_is_its_formula(g: float) -> None:
    """conf <= p + (1 - p) / K, as log-odds."""

    class Constant(torch.nn.Module):
        def forward(self, x: Box) -> Box:
            flat = x.flatten(1)[:, :2] * torch.zeros(2)
            return flat + torch.tensor([g, 0.0])

    detector = Joint(Discriminated(torch.nn.Identity(), Constant(), CLASSES))
    upper = float(detector.score_upper(Box.around(images(0, 1), 0.1)))
    g = float(torch.tensor(g))
    if abs(g) < 10:  # beyond, 1 - confidence loses digits
        p = 1 / (1 + math.exp(-g))
        confidence = p + (1 - p) / CLASSES
        assert upper == pytest.approx(math.log(confidence / (1 - confidence)), rel=1e-6, abs=1e-6)
    assert upper >= -math.log(CLASSES - 1)
    assert upper == pytest.approx(math.log(math.exp(g) + (1 + math.exp(g)) / (CLASSES - 1)), rel=1e-5, abs=1e-5)


def test_a_sure_classifier_reaches_the_bound_of_joint() -> None:
    """At eps 0 and with one class as good as certain, the confidence is p + (1 - p) / K itself."""
    detector, x = joint(sharp=1e5), images(3, 8)
    assert torch.allclose(detector.score(x), detector.score_upper(Box.around(x, 0.0)), atol=5e-3)


def test_the_bound_of_joint_grows_with_the_box() -> None:
    detector, x = joint(), images(4, 8)
    bounds = [detector.score_upper(Box.around(x, eps)) for eps in (0.0, 0.01, 0.1, 1.0)]
    assert all(bool((small <= large).all()) for small, large in itertools.pairwise(bounds))


# ---- Mixture ---------------------------------------------------------------------------------------------------------


def test_the_bound_of_mixture_is_its_formula() -> None:
    """conf <= (1 + K b) / (K (1 + b)), b the ratio of the densities: exact at a single point."""
    detector = mixture()
    x = torch.cat([images(5, 4) / 3, images(6, 4)])
    y = detector.network.whitened(x)
    b = (detector.network.inside.log_density(y) - detector.network.outside.log_density(y)).exp()
    confidence = (1 + CLASSES * b) / (CLASSES * (1 + b))
    near = b < 1e9  # beyond, 1 - confidence is lost in float64
    found = detector.score_upper(Box.around(x, 0.0)).sigmoid()
    assert torch.allclose(found, confidence, atol=1e-9)
    assert near.any()


def test_the_stretch_is_the_largest_singular_value() -> None:
    detector = mixture()
    largest = float(torch.linalg.matrix_norm(detector.network.metric.double(), 2))
    assert largest <= detector.stretch <= largest * 1.001


def test_the_box_lies_in_the_ball() -> None:
    detector, x = mixture(), images(7, 5)
    box = Box.around(x, 0.05)
    reach = detector.stretch * 0.05 * math.sqrt(64)  # sqrt(d lambda_max) eps
    centre = detector.network.whitened(x)
    for z in points(box, 20):
        assert ((detector.network.whitened(z) - centre).norm(dim=1) <= reach).all()


def test_mixture_guarantees_nothing_in_the_l_inf_norm_and_something_in_its_own_metric() -> None:
    """The paper's finding (appendix on CCU), here on uniform noise."""
    detector, noise = mixture(), images(8, 50)
    inside = detector.score(images(9, 200) / 3)
    assert (detector.score_upper(Box.around(noise, 0.3)) > inside.max()).all()
    own = detector.score_upper_within(noise, 1.0).sigmoid()
    assert (own < 1 / CLASSES + 0.01).all()
    assert (own >= detector.score(noise).sigmoid()).all()
    draw = generator(1)
    for _ in range(20):  # images at that distance
        step = torch.randn(50, 64, generator=draw, dtype=torch.float64)
        step = step / (step @ detector.network.metric.double().T).norm(dim=1, keepdim=True)
        z = (noise.flatten(1).double() + 0.999 * step).clamp(0, 1).float()
        distance = (detector.network.whitened(z) - detector.network.whitened(noise)).norm(dim=1)
        score = detector.score(z.reshape(noise.shape)).sigmoid()
        assert (score <= own)[distance <= 1].all()
