"""The hot path of interval passes against the rules that it replaces: the same bounds, the same gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certood import Box, max_gap, networks
from certood.bounds.affine import signed

CASES = {
    "linear": (F.linear, (5, 6), (4, 6), {}),
    "convolution": (F.conv2d, (3, 4, 7, 6), (6, 4, 3, 3), {}),
    "stride, padding": (F.conv2d, (3, 4, 7, 6), (6, 4, 3, 3), {"stride": 2, "padding": (1, 0)}),
    "groups": (F.conv2d, (3, 4, 7, 6), (6, 2, 3, 2), {"groups": 2, "padding": 1}),
    "dilation": (F.conv2d, (3, 4, 9, 9), (6, 4, 3, 3), {"dilation": (2, 1), "stride": (1, 2)}),
    "same": (F.conv2d, (3, 4, 7, 6), (6, 4, 3, 3), {"padding": "same"}),
}


def by_autograd(function: Callable[..., Tensor], lower: Tensor, upper: Tensor, weight: Tensor, bias: Any) -> Any:
    """The formula of the affine rule, one torch function at a time."""
    centre, radius = function((lower + upper) / 2, weight, bias), function((upper - lower) / 2, weight.abs(), None)
    return centre - radius, centre + radius


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_bounds_and_gradients_are_those_of_the_formula(name: str, biased: bool) -> None:
    function, shape, weights, settings = CASES[name]
    torch.manual_seed(0)
    lower = torch.randn(shape, dtype=torch.float64)
    tensors = [lower, lower + torch.rand(shape).double(), torch.randn(weights, dtype=torch.float64)]
    tensors[2].view(-1)[::7] = 0  # where |w| has a kink, torch's derivative is 0
    bias = torch.randn(weights[0], dtype=torch.float64) if biased else None
    own, other = ([each.clone().requires_grad_() for each in (*tensors, *([bias] if biased else []))] for _ in range(2))
    call = partial(function, **settings)

    box = call(Box.of(own[0], own[1]), own[2], own[3] if biased else None)
    found = (box.lower, box.upper)
    expected = by_autograd(call, other[0], other[1], other[2], other[3] if biased else None)
    directions = [torch.randn_like(end) for end in found]
    torch.autograd.backward(found, directions)
    torch.autograd.backward(expected, directions)
    for one, two in zip(
        (*found, *(each.grad for each in own)), (*expected, *(each.grad for each in other)), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_what_needs_no_gradient_gets_none() -> None:
    network = networks.build("XS", 1, 28, 10)
    for parameter in network[0].parameters():
        parameter.requires_grad_(False)
    x = torch.rand(2, 1, 28, 28)
    max_gap(network, Box.around(x, 0.1)).sum().backward()
    assert all((parameter.grad is None) == (index < 2) for index, parameter in enumerate(network.parameters()))
    x.requires_grad_()
    network.zero_grad()
    max_gap(network.requires_grad_(False), Box.around(x, 0.1, cut=False)).sum().backward()
    assert x.grad.abs().sum() > 0


def test_the_sign_of_a_weight_is_taken_block_by_block() -> None:
    weight, gradient = torch.randn(700, 400, 3), torch.randn(700, 400, 3)
    weight[5] = 0
    assert torch.equal(signed(gradient.clone(), weight), gradient * weight.sign())


def test_another_precision_than_the_weights_is_refused() -> None:
    for layer, shape in ((nn.Linear(4, 3), (2, 4)), (nn.Conv2d(4, 3, 3), (2, 4, 5, 5))):
        with pytest.raises(RuntimeError, match=r"dtype|type"):
            layer(Box.around(torch.rand(shape).double(), 0.1))


def test_an_end_that_overflows_leaves_no_bound() -> None:
    largest = torch.finfo(torch.float32).max
    box = nn.Linear(2, 3)(Box(torch.full((1, 2), -largest), torch.full((1, 2), largest)))
    assert (box.lower.isnan() | (box.lower == -torch.inf)).all()
    assert (box.upper.isnan() | (box.upper == torch.inf)).all()


# ---- low precision, in training only ---------------------------------------------------------------------------------


def test_autocast_computes_both_products_in_its_precision_and_keeps_gradients_in_the_weights_own() -> None:
    torch.manual_seed(0)
    network, box = networks.build("XS", 1, 28, 10), Box.around(torch.rand(8, 1, 28, 28), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        low = network[:2](box)
        out = network(box)
    assert (low.lower.dtype, low.upper.dtype, out.upper.dtype) == (torch.bfloat16,) * 3
    (out.upper.amax(1) - out.lower.amin(1)).sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in network.parameters())


def test_low_precision_rounds_a_bound_to_both_sides() -> None:
    """Training in bfloat16 must not see bounds that are systematically too low."""
    torch.manual_seed(0)
    network, box = networks.build("S", 1, 28, 10), Box.around(torch.rand(256, 1, 28, 28), 0.1)
    with torch.no_grad():
        exact = max_gap(network, box)
        with torch.autocast("cpu", torch.bfloat16):
            out = network(box)
        features = out.source.box
        low = max_gap(network[-1], Box.of(features.lower.float(), features.upper.float()))
    difference = (low - exact) / exact
    assert 0 < difference.abs().max() < 0.02
    assert (difference.mean().abs() < 0.005).all()
