"""Sound bounds against exact arithmetic, against every way to execute a sum in float32, and against searches for a
violation. What finds none for the sound bound must find one for the float32 bound: else it would prove nothing.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SHAPE, ZOO, architectures, generator, member, points
from torch import Tensor, nn

import certood
from certood import Box, UnsupportedOperation, confidence_upper, logit_gaps, max_gap, networks
from certood.bounds import score_lower, score_upper
from certood.bounds.rounding import SoundBox
from certood.detectors import Softmax, log_odds

# ---- one layer: the worst corner is known, and so is its exact value -------------------------------------------------


class Case(NamedTuple):
    """Two logits of one linear layer on one box, all float32."""

    weight: Tensor  # [2, d]
    bias: Tensor  # [2]
    box: Box  # [1, d]

    @property
    def network(self) -> nn.Linear:
        layer = nn.Linear(self.weight.shape[1], 2)
        layer.weight.data, layer.bias.data = self.weight, self.bias
        return layer.requires_grad_(False)

    def worst(self, top: int) -> Tensor:
        """The corner where f_top - f_other is largest."""  # [d]
        direction = self.weight[top].double() - self.weight[1 - top].double()  # its sign is exact
        return torch.where(direction > 0, self.box.upper[0], self.box.lower[0])


# Sizes of weights and of inputs. The products of the last stay below what float32 can hold, barely.
REGIMES: dict[str, tuple[float, float]] = {
    "usual": (1.0, 1.0),
    "tiny": (1e-30, 1.0),
    "denormal weights": (1e-40, 1.0),
    "denormal inputs": (1.0, 1e-40),
    "denormal products": (1e-25, 1e-20),
    "huge": (1e28, 1.0),
    "huge inputs": (1.0, 1e28),
    "mixed": (0.0, 1.0),
}


def drawn(regime: str, inputs: int, seed: int) -> Case:
    draw = generator(seed)
    scale, size = REGIMES[regime]
    weight = torch.randn(2, inputs, generator=draw)
    if regime == "mixed":
        weight *= 2.0 ** torch.randint(-60, 40, (2, inputs), generator=draw)
    else:
        weight *= scale
    bias = torch.randn(2, generator=draw) * (scale or 1.0) * size
    x = torch.rand(1, inputs, generator=draw)
    if seed % 2:
        x -= 0.5
    reach = float(torch.rand(1, generator=draw)) * (0.3, 1e-3, 1e-7, 0.0)[seed % 4]
    return Case(weight, bias, Box((x - reach) * size, (x + reach) * size))


def exact_products(case: Case, top: int) -> list[float]:
    """f_top - f_other at its worst corner as a list to be summed: products of two float32 are exact in float64."""
    z, weight, bias = case.worst(top).double(), case.weight.double(), case.bias.double()
    return [*(weight[top] * z).tolist(), *(-weight[1 - top] * z).tolist(), float(bias[top]), -float(bias[1 - top])]


def exceeds(case: Case, top: int, bound: float) -> bool:
    """Is the exact worst value above the bound? fsum rounds the exact sum once, so its sign is exact."""
    return bound < math.inf and math.fsum([*exact_products(case, top), -bound]) > 0


def violated(case: Case, sound: bool) -> bool:
    bound = float(score_upper(case.network, case.box, sound)[0])
    gaps = logit_gaps(case.network, case.box, sound)[0].double()
    return any(exceeds(case, top, min(bound, float(gaps[top, 1 - top]))) for top in (0, 1))


def cases(count: int, most_inputs: int) -> Iterator[Case]:
    """Of all regimes and sizes, more small ones."""
    sizes = [size for size in (1, 2, 3, 5, 9, 16, 33, 64, 150, 400, 784, 3136, 25088) if size <= most_inputs]
    names = list(REGIMES)
    for seed in range(count):
        rarely = seed % 97 == 0
        size = sizes[-1] if rarely else sizes[(seed // 8) % max(1, len(sizes) - 3)]
        yield drawn(names[seed % len(names)], size, seed)


def test_the_sign_of_the_sum_is_that_of_rational_arithmetic() -> None:
    for case in cases(200, 64):
        for top in (0, 1):
            products = exact_products(case, top)
            z, weight = [Fraction(v) for v in case.worst(top).tolist()], case.weight.tolist()
            value = sum(
                (Fraction(a) - Fraction(b)) * c for a, b, c in zip(weight[top], weight[1 - top], z, strict=True)
            )
            value += Fraction(float(case.bias[top])) - Fraction(float(case.bias[1 - top]))
            assert value == sum(map(Fraction, products))
            assert float(value) == math.fsum(products)


@pytest.mark.parametrize("count", [800, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_exact_worst_corner_is_above_the_bound(count: int) -> None:
    """And about half of all float32 bounds are too low, by this very test."""
    found = 0
    for case in cases(count, 25088 if count > 1000 else 3136):
        assert not violated(case, sound=True)
        found += violated(case, sound=False)
    assert found > count / 5


def test_bounds_of_one_layer_are_tight_and_not_vacuous() -> None:
    for regime in ("usual", "tiny", "huge", "huge inputs", "mixed"):
        for seed in range(20):
            case = drawn(regime, 100, seed)
            bound = float(score_upper(case.network, case.box, sound=True)[0])
            exact = max(math.fsum(exact_products(case, top)) for top in (0, 1))
            size = float((case.weight.abs() @ torch.maximum(-case.box.lower, case.box.upper)[0]).sum())
            assert exact <= bound <= exact + 1e-4 * size + 1e-12


# ---- executions ------------------------------------------------------------------------------------------------------


def in_turn(products: np.ndarray, start: np.ndarray) -> np.ndarray:
    total = start.copy()
    for column in products.T:
        total = total + column  # float32
    return total


def fused(weight: np.ndarray, x: np.ndarray, start: np.ndarray) -> np.ndarray:
    """With one rounding for a product and its sum: both are exact in float64, or nearly."""
    total = start.copy()
    for left, right in zip(weight.T, x.T, strict=True):
        total = (left.astype(np.float64) * right.astype(np.float64) + total).astype(np.float32)
    return total


def executions(weight: np.ndarray, x: np.ndarray, bias: np.ndarray) -> Iterator[np.ndarray]:
    """w x + b for rows of w and x, summed in many orders.  # [N, d], [N, d], [N] -> [N]"""
    products, none = weight * x, np.zeros_like(bias)
    large_first, small_first = (np.take_along_axis(products, order, 1) for order in _by_size(products))
    yield in_turn(products, bias)
    yield in_turn(products[:, ::-1], none) + bias
    yield in_turn(large_first, none) + bias
    yield in_turn(small_first, bias)
    yield in_turn(np.sort(products, 1), bias)  # what is below 0 first: the largest partial sums
    yield in_turn(-np.sort(-products, 1), bias)
    yield products.sum(1) + bias  # in pairs
    yield np.einsum("nd,nd->n", weight, x) + bias
    yield fused(weight, x, bias)
    yield fused(weight[:, ::-1], x[:, ::-1], none) + bias
    lanes = [in_turn(products[:, lane::8], none) for lane in range(min(8, products.shape[1]))]
    yield in_turn(np.stack(lanes, 1), bias)


def _by_size(products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(np.abs(products), 1)
    return order[:, ::-1], order


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(
    ("inputs", "count"), [(3, 40), (40, 40), (784, 4), pytest.param(25088, 2, marks=pytest.mark.slow)]
)
def test_no_order_of_summation_exceeds_the_bound(regime: str, inputs: int, count: int) -> None:
    with np.errstate(over="ignore"):
        for flush in (False, True):
            some = [drawn(regime, inputs, seed) for seed in range(count)]
            uppers = [float(score_upper(case.network, case.box, sound=True)[0]) for case in some]
            boxes = [case.network(SoundBox.enclosing(case.box)) for case in some]
            for top in (0, 1):
                x = _flushed(np.stack([case.worst(top).numpy() for case in some]), flush)
                weights = [_flushed(np.stack([case.weight[k].numpy() for case in some]), flush) for k in (0, 1)]
                biases = [_flushed(np.stack([case.bias[k].numpy() for case in some]), flush) for k in (0, 1)]
                ways = [list(executions(weights[k], x, biases[k])) for k in (0, 1)]
                for k in (0, 1):
                    for value in ways[k]:
                        for one, box in zip(_flushed(value, flush), boxes, strict=True):
                            assert not one < box.lower[0, k]
                            assert not one > box.upper[0, k]
                largest = np.max(np.stack(ways[top]).astype(np.float64), 0)
                smallest = np.min(np.stack(ways[1 - top]).astype(np.float64), 0)
                assert not (largest - smallest > uppers).any()  # each logit in an order of its own


def _flushed(values: np.ndarray, flush: bool) -> np.ndarray:
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.float32(0), values) if flush else values


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def scores_everywhere(network: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """The same images in batches of every size, in two memory layouts, by one thread and by several.  # [N] each"""
    detector = Softmax(network)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for size in (1, 2, 3, 5, 8, len(x)):
            for layout in (torch.contiguous_format, torch.channels_last):
                parts = [part.contiguous(memory_format=layout) for part in torch.split(x, size)]
                yield torch.cat([detector.score(part) for part in parts])


@pytest.mark.parametrize("name", ["XS", "S"])
@pytest.mark.usefixtures("_threads")
def test_a_single_image_is_within_its_bounds_however_it_is_batched(name: str) -> None:
    """eps = 0. The float32 bound is one of these numbers itself, and so not above all others."""
    torch.manual_seed(0)
    network = networks.build(name, 1, 28, 10).requires_grad_(False)
    x = torch.rand(32, 1, 28, 28, generator=generator())
    box = Box(x, x.clone())
    upper, lower = score_upper(network, box, sound=True), score_lower(network, box, sound=True)
    plain, missed = score_upper(network, box), 0
    for scores in scores_everywhere(network, x):
        assert (lower <= scores).all()
        assert (scores <= upper).all()
        missed += int((scores > plain).sum())
    assert missed > 0
    assert (upper - lower).max() < 0.1  # of some 10; a radius that only rounding makes, through four layers


def test_the_confidence_as_float32_executes_it() -> None:
    torch.manual_seed(0)
    for classes in (2, 10, 300):
        network = nn.Sequential(nn.Flatten(), nn.Linear(30, classes)).requires_grad_(False)
        for scale in (0.1, 1.0, 30.0):
            x = torch.randn(200, 30) * scale
            upper = confidence_upper(network, Box(x, x.clone()), sound=True)
            assert upper.dtype == torch.float32
            assert (network(x).softmax(1).amax(1) <= upper).all()
            assert (network(x).double().softmax(1).amax(1) <= upper).all()
            assert (network(x).t().contiguous().softmax(0).amax(0) <= upper).all()
            assert (upper - network(x).softmax(1).amax(1) <= 1e-3).all()


# ---- searches for a violation ----------------------------------------------------------------------------------------


def active(seed: int, inputs: int = 40) -> nn.Sequential:
    """A network whose units are all active, so that it is linear in its box and its bound is reached."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(inputs, 30), nn.ReLU(), nn.Linear(30, 2)).requires_grad_(False)
    network[0].bias.fill_(20.0)
    network[2].weight[0] = network[2].weight[0].abs()
    network[2].weight[1] = -network[2].weight[1].abs()
    network[0].weight.copy_(network[0].weight.abs())
    return network


def climb(score: Callable[[Tensor], Tensor], box: Box, steps: int, seed: int) -> Tensor:
    """The highest score that 64 climbers find: from the worst corner, one changed coordinate at a time.  # []"""
    draw = generator(seed)
    z = box.upper.repeat(64, 1)
    lower, upper = box.lower.expand_as(z), box.upper.expand_as(z)
    best = score(z)
    for _ in range(steps):
        near = torch.nextafter(z, torch.where(torch.rand(z.shape, generator=draw) < 0.5, lower, upper))
        other = torch.where(torch.rand(z.shape, generator=draw) < 0.5, near, torch.where(z == upper, lower, upper))
        proposed = torch.where(torch.rand(z.shape, generator=draw) < 1 / z.shape[1], other, z)
        proposed = torch.minimum(torch.maximum(proposed, lower), upper)
        found = score(proposed)
        better = found >= best
        z, best = torch.where(better[:, None], proposed, z), torch.where(better, found, best)
    return best.max()


@pytest.mark.parametrize("steps", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_climber_finds_no_score_above_the_sound_bound_and_one_above_the_other(steps: int) -> None:
    found = 0
    for seed in range(12):
        network = active(seed)
        x = torch.rand(1, 40, generator=generator(seed))
        box = Box.around(x, (1e-6, 1e-4, 0.01)[seed % 3])
        best = climb(Softmax(network).score, box, steps, seed)
        sound, plain = score_upper(network, box, sound=True)[0], score_upper(network, box)[0]
        assert best <= sound
        assert sound - best < 0.01  # the climber stands below the bound, not far away
        found += bool(best > plain)
    assert found > 0


def executed_inside(network: nn.Module, box: Box, seed: int) -> None:
    with torch.no_grad():
        bound = network(SoundBox.enclosing(box))
        upper, lower = score_upper(network, box, sound=True), score_lower(network, box, sound=True)
        gaps = logit_gaps(network, box, sound=True)
        for z in points(box, 6, seed):
            for flush in (False, True):
                torch.set_flush_denormal(flush)
                logits = network(z.clone())
                torch.set_flush_denormal(False)
                assert not (logits < bound.lower).any()
                assert not (logits > bound.upper).any()
                scores = log_odds(logits.double().log_softmax(1))
                assert (scores <= upper).all()
                assert (scores >= lower).all()
                assert (logits.double()[:, :, None] - logits.double()[:, None] <= gaps.double()).all()
        assert (gaps >= logit_gaps(network, Box(box.lower, box.lower.clone()), sound=True) - 1e-3).all()


@settings(max_examples=60)
@given(architectures(), st.sampled_from([0.0, 1e-6, 0.01, 0.3]), st.integers(0, 1000))
def test_random_architectures(network: nn.Module, eps: float, seed: int) -> None:
    x = torch.rand(2, *SHAPE, generator=generator(seed))
    executed_inside(network.float(), Box.around(x, eps), seed)


@pytest.mark.slow
@settings(max_examples=1500)
@given(architectures(), st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0]), st.integers(0, 10**6))
def test_many_random_architectures(network: nn.Module, eps: float, seed: int) -> None:
    x = torch.rand(2, *SHAPE, generator=generator(seed))
    executed_inside(network.float(), Box.around(x, eps), seed)


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("eps", [0.0, 0.02])
def test_the_zoo(name: str, eps: float) -> None:
    x = torch.rand(3, *SHAPE, generator=generator())
    executed_inside(member(name).float(), Box.around(x, eps), 0)


def test_float32_bounds_of_the_zoo_are_left() -> None:
    """eps = 0 in batches of another size: what `executed_inside` checks fails for bounds that are not widened."""
    left = 0
    for name in ZOO:
        network, x = member(name).float().requires_grad_(False), torch.rand(64, *SHAPE, generator=generator())
        bound = network(Box(x, x.clone()))
        logits = torch.cat([network(part) for part in torch.split(x, 1)])
        left += int(((logits < bound.lower) | (logits > bound.upper)).sum())
    assert left > 0


# ---- no guarantee rather than a wrong one ----------------------------------------------------------------------------


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).requires_grad_(False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("place", ["0.weight", "0.bias", "2.weight", "2.bias"])
def test_what_is_not_finite_guarantees_nothing(value: float, place: str) -> None:
    network = two_layers()
    dict(network.named_parameters())[place].view(-1)[0] = value
    box = Box.around(torch.rand(2, 4) * 0.5 + 0.4, 0.1)
    assert (score_upper(network, box, sound=True) == torch.inf).all()
    assert (score_lower(network, box, sound=True) == -torch.inf).all()
    assert (confidence_upper(network, box, sound=True) == 1).all()
    assert (max_gap(network, box, sound=True) == torch.inf).all()


def test_one_image_that_overflows_does_not_take_the_others_along() -> None:
    network = two_layers()
    x = torch.rand(3, 4)
    x[1] = 3e38
    upper = score_upper(network, Box(x, x.clone()), sound=True)
    assert upper.isinf().tolist() == [False, True, False]


def test_an_empty_batch_has_no_bounds() -> None:
    box = Box(torch.empty(0, 4), torch.empty(0, 4))
    assert score_upper(two_layers(), box, sound=True).shape == (0,)


def test_more_terms_than_a_bound_can_be_given_for() -> None:
    network = nn.Linear(2**21 + 1, 2)
    with pytest.raises(UnsupportedOperation, match="no useful error bound"):
        score_upper(network, Box(*torch.zeros(2, 1, 2**21 + 1)), sound=True)


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (lambda x: two_layers()(x.double()), "does not know how it rounds"),
        (lambda x: two_layers()(x.to(torch.float64)), "goes over to torch.float64"),
        (lambda x: two_layers()(x).to(torch.bfloat16), "goes over to torch.bfloat16"),
        (lambda x: two_layers()(x) * torch.ones(3, dtype=torch.float64), "a constant of the network is torch.float64"),
        (lambda x: two_layers()(x) + torch.ones(3, dtype=torch.float16), "a constant of the network is torch.float16"),
    ],
)
def test_other_precisions_are_refused(network: Callable[[Box], Box], told: str) -> None:
    with pytest.raises(UnsupportedOperation, match=told):
        score_upper(network, Box.around(torch.rand(2, 4), 0.1), sound=True)


def test_a_box_of_another_precision_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match=r"this Box is torch\.float64"):
        score_upper(two_layers().double(), Box.around(torch.rand(2, 4).double(), 0.1), sound=True)


def test_a_function_that_rounds_in_an_unknown_way_is_refused() -> None:
    certood.bounds.rule(torch.asinh)(lambda box: Box.of(torch.asinh(box.lower), torch.asinh(box.upper)))
    try:
        box = Box.around(torch.rand(2, 4), 0.1)
        assert (score_upper(lambda x: torch.asinh(two_layers()(x)), box) < 9).all()
        with pytest.raises(UnsupportedOperation, match=r"no sound bound for torch\.asinh"):
            score_upper(lambda x: torch.asinh(two_layers()(x)), box, sound=True)
    finally:
        del certood.boxes.RULES[torch.asinh]


# ---- layouts in memory -----------------------------------------------------------------------------------------------

LAYOUTS = {
    "as usual": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "samples inside": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
}
MAYBE_COPIES = {
    "flatten": lambda y: y.flatten(1),
    "reshape": lambda y: y.reshape(len(y), -1),
    "contiguous": lambda y: y.contiguous(),
    "permuted": lambda y: y.permute(0, 2, 3, 1).contiguous(),
}


class InPlace(nn.Module):
    """Works in place on what may or may not share its input's memory, then uses both."""

    def __init__(self, first: nn.Module, second: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = self.second(y)
        nn.functional.hardtanh(z, 0.0, 0.3, inplace=True)
        return y.flatten(1) - 2 * z.flatten(1)


@pytest.mark.parametrize("weights", ["as usual", "channels last"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MAYBE_COPIES)
def test_what_is_changed_in_place_is_what_the_execution_changes(name: str, layout: str, weights: str) -> None:
    x = LAYOUTS[layout](torch.rand(2, 3, 8, 8, generator=generator()))
    convolution = nn.Conv2d(3, 4, 3, padding=1)
    convolution.weight.data = LAYOUTS[weights](convolution.weight.data)
    for first in (nn.Identity(), convolution, nn.Sequential(convolution, nn.ELU(), nn.AvgPool2d(2))):
        network = InPlace(first, MAYBE_COPIES[name]).eval()
        bound, value = network(SoundBox.enclosing(Box(x, x.clone()))), network(x.clone())
        assert bool(((value >= bound.lower) & (value <= bound.upper)).all())
