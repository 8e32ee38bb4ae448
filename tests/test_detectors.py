"""The Softmax detector: log-odds of the top class, finite where the confidence is 1, and bounded over a Box."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import ZOO, generator, images, member, points
from torch import Tensor, nn

from certood.bounds import Box, confidence_upper
from certood.detectors import Softmax


def constant(logits: list[list[float]], dtype: torch.dtype = torch.float32) -> Softmax:
    """A detector that answers these logits whatever it sees."""

    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor(logits, dtype=dtype)

    return Softmax(Constant())


def test_scores_by_hand() -> None:
    """Logits 0, log 2, log 3 have confidence 3/6: even odds. Two equal logits have even odds too."""
    detector = constant([[0.0, np.log(2), np.log(3)], [5.0, 5.0, -torch.inf]], torch.float64)
    assert detector.score(torch.zeros(2)).tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    assert detector.log_probs(torch.zeros(2))[0].exp().tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6])


def test_float32_logits_are_scored_in_float64() -> None:
    logits = torch.tensor([[1.1, 2.3, -0.7], [9.7, -3.1, 0.2]])
    wide = np.exp(logits.double().numpy())
    score = constant(logits.tolist()).score(torch.zeros(2))
    assert np.allclose(score.numpy(), np.log(wide.max(1) / (wide.sum(1) - wide.max(1))), rtol=1e-13)


@given(st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=1, max_size=20))
def test_the_score_is_the_logit_of_the_confidence(logits: list[list[float]]) -> None:
    detector = constant(logits, torch.float64)
    confidence = np.exp(detector.log_probs(torch.zeros(1)).numpy()).max(1)
    score = detector.score(torch.zeros(1))
    assert score.dtype == torch.float64
    assert np.allclose(score.sigmoid().numpy(), confidence, rtol=1e-12)
    order = np.argsort(score.numpy(), kind="stable")
    assert (np.diff(confidence[order]) >= -1e-15).all()


def test_it_does_not_saturate() -> None:
    """At logits of +-1e4 all confidences are 1 in any float; the scores are finite and keep their order."""
    logits = [[1e4 + step, -1e4, 0.0] for step in (0.0, 1.0, 2.0, 3.0)]
    detector = constant(logits)
    score = detector.score(torch.zeros(1))
    assert detector.log_probs(torch.zeros(1)).amax(1).exp().tolist() == [1.0] * 4
    assert score.isfinite().all()
    assert score.tolist() == pytest.approx([1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3], abs=1e-3)
    assert constant([[-1e4, -1e4, -1e4]]).score(torch.zeros(1)).tolist() == pytest.approx([-np.log(2)])


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("eps", [0.0, 0.01, 0.2])
def test_the_upper_score_bounds_the_score(name: str, eps: float) -> None:
    detector, box = Softmax(member(name)), Box.around(images(), eps)
    with torch.no_grad():
        upper = detector.score_upper(box)
        assert upper.dtype == torch.float64
        for z in points(box, 5):
            assert (detector.score(z) <= upper + 1e-9 * (1 + upper.abs())).all()
        if eps == 0:
            assert torch.allclose(upper, detector.score(images()), rtol=1e-8, atol=1e-8)
        assert torch.allclose(upper.sigmoid(), confidence_upper(detector.network, box), rtol=1e-12)


def test_the_upper_score_is_the_logit_of_eq_6() -> None:
    network, box = member("pooling"), Box.around(images(), 0.001)
    confidence = confidence_upper(network, box)
    assert torch.allclose(Softmax(network).score_upper(box), torch.logit(confidence), rtol=1e-6)


def test_it_has_a_gradient_for_attacks() -> None:
    torch.manual_seed(0)
    detector = Softmax(nn.Linear(4, 3))
    x = torch.rand(2, 4, generator=generator()).requires_grad_()
    (slope,) = torch.autograd.grad(detector.score(x).sum(), x)
    assert slope.abs().sum() > 0
