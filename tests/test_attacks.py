"""An attack stays in its box, evaluates what it returns, and never does worse than where it began."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from certood import networks
from certood.attacks import maximise
from certood.bounds import Box, score_upper
from certood.detectors import Softmax


def detector(seed: int) -> Softmax:
    torch.manual_seed(seed)
    network = networks.build("XS", channels=1, size=8, classes=4)
    network[-1].weight.data *= 30  # fresh weights are nearly flat
    return Softmax(network.double())


@given(st.integers(0, 20), st.floats(0, 0.5), st.integers(0, 8))
def test_inside_evaluated_and_no_worse_than_the_start(seed: int, eps: float, steps: int) -> None:
    torch.manual_seed(seed)
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    box, score = Box.around(x, eps), detector(seed).score
    found = maximise(score, box, start=x, steps=steps)
    assert box.contains(found.points).all()
    assert torch.equal(found.scores, score(found.points).detach())
    assert (found.scores >= score(x)).all()


def test_more_steps_never_hurt_with_the_same_step_size() -> None:
    score, box = detector(0).score, Box.around(torch.rand(4, 1, 8, 8, dtype=torch.float64), 0.1)
    scores = [maximise(score, box, steps=steps, step_size=0.01).scores for steps in (0, 5, 20)]
    assert (scores[0] <= scores[1]).all()
    assert (scores[1] <= scores[2]).all()
    assert (scores[2] > scores[0] + 0.01).all()


def test_a_linear_score_is_maximised_exactly() -> None:
    direction = torch.randn(1, 8, 8)
    box = Box.around(torch.rand(5, 1, 8, 8), 0.2)
    found = maximise(lambda z: (z * direction).flatten(1).sum(1), box, steps=40, step_size=0.02)
    assert torch.equal(found.points, box.corner(direction))


def test_attack_below_bound() -> None:
    own = detector(3)
    box = Box.around(torch.rand(6, 1, 8, 8, dtype=torch.float64), 0.05)
    assert (maximise(own.score, box).scores <= score_upper(own.network, box)).all()


def test_weights_get_no_gradient() -> None:
    own = detector(1)
    maximise(own.score, Box.around(torch.rand(2, 1, 8, 8, dtype=torch.float64), 0.05), steps=3)
    assert all(weight.grad is None for weight in own.network.parameters())


def test_a_score_of_nan_is_never_the_best() -> None:
    def score(z: Tensor) -> Tensor:
        value = z.flatten(1).sum(1)
        return torch.where(value > 32, torch.nan, value)

    found = maximise(score, Box.around(torch.full((2, 1, 8, 8), 0.5), 0.3), step_size=0.01, steps=20)
    assert found.scores.isfinite().all()
    assert found.scores == pytest.approx([32.0, 32.0])
