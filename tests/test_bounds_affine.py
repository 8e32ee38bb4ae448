"""The hot path of interval passes against the rules that it replaces: the same bounds, the same gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certood import Box, max_gap, networks
from certood.bounds import keeping
from certood.bounds.affine import apart, halved_signs

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


@pytest.mark.parametrize("name", ["linear", "convolution"])
@pytest.mark.parametrize("which", [0, 1])
def test_one_end_alone_gets_its_gradient(name: str, which: int) -> None:
    function, shape, weights, _ = CASES[name]
    lower = torch.randn(shape, dtype=torch.float64)
    ends = [lower, lower + 1]
    ends[which].requires_grad_()
    weight = torch.randn(weights, dtype=torch.float64)
    box = function(Box.of(*ends), weight)
    expected = by_autograd(function, *ends, weight, None)
    found, wanted = (
        torch.autograd.grad((2 * low + up).sum(), ends[which])[0] for low, up in ((box.lower, box.upper), expected)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_the_sign_of_a_weight_is_taken_block_by_block() -> None:
    weight, gradient = torch.randn(700, 400, 3), torch.randn(700, 400, 3)
    weight[5] = 0
    assert torch.equal(halved_signs(gradient.clone(), weight), gradient * weight.sign() / 2)


def test_another_precision_than_the_weights_is_refused() -> None:
    for layer, shape in ((nn.Linear(4, 3), (2, 4)), (nn.Conv2d(4, 3, 3), (2, 4, 5, 5))):
        with pytest.raises(RuntimeError, match=r"dtype|type"):
            layer(Box.around(torch.rand(shape).double(), 0.1))


def test_an_end_that_overflows_leaves_no_bound() -> None:
    largest = torch.finfo(torch.float32).max
    box = nn.Linear(2, 3)(Box(torch.full((1, 2), -largest), torch.full((1, 2), largest)))
    assert (box.lower.isnan() | (box.lower == -torch.inf)).all()
    assert (box.upper.isnan() | (box.upper == torch.inf)).all()


# ---- a second pass over some of the samples --------------------------------------------------------------------------


class InPlace(nn.Module):
    """Changes the answer of a layer after it was kept, through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.first(torch.flatten(x, 1))
        F.relu(x.view(-1, 8), inplace=True)
        return self.last(x)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", ["XS", "in place"])
def test_a_second_pass_gives_the_same_bounds_and_gradients(name: str, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    network = networks.build("XS", 1, 28, 10) if name == "XS" else InPlace()
    x = (torch.rand(9, 1, 28, 28) if name == "XS" else torch.rand(9, 1, 2, 3)).to(memory_format=layout)
    network, box, rows = network.to(memory_format=layout), Box.around(x, 0.1), torch.tensor([7, 2, 3])
    with torch.no_grad(), keeping(len(x)) as kept:
        first = max_gap(network, box)
    with kept.again(rows):
        second = max_gap(network, box.select(rows))
    alone = max_gap(network, box.select(rows))
    torch.testing.assert_close(second, first[rows])
    gradients = [torch.autograd.grad(bound.sum(), list(network.parameters())) for bound in (second, alone)]
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_a_second_pass_computes_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    network, box, count = networks.build("XS", 1, 28, 10), Box.around(torch.rand(5, 1, 28, 28), 0.1), []
    monkeypatch.setattr("certood.bounds.affine.apart", lambda *ends: count.append(1) or apart(*ends))
    with torch.no_grad(), keeping(5) as kept:
        network(box)
    assert len(count) == 5
    with kept.again(torch.tensor([0, 4])):
        network(box.select(torch.tensor([0, 4])))
    assert len(count) == 5
    network(box)  # outside nothing is remembered
    assert len(count) == 10


def test_what_is_not_of_these_samples_is_computed_again() -> None:
    """A layer whose rows are no samples: here every image is cut into two."""
    linear = nn.Linear(3, 4)
    network = nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(0, 1), linear, nn.Unflatten(0, (-1, 2)), nn.Flatten(1))
    box, rows = Box.around(torch.rand(5, 6), 0.1), torch.tensor([1, 3])
    with torch.no_grad(), keeping(5) as kept:
        first = network(box).upper
    with kept.again(rows):
        assert torch.equal(network(box.select(rows)).upper, first[rows])


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
