"""What each function adds by rounding: for float32 of every size, what is executed lies in the bound of that one point.

Without widening the same tests fail.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import generator
from torch import Tensor

from certood import Box, UnsupportedOperation
from certood.bounds import ulps
from certood.bounds.rounding import ROUNDINGS, SoundBox, widened
from certood.boxes import RULES

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(F, name) for name in ("relu", "relu6", "selu", "sigmoid", "hardsigmoid", "tanh", "hardtanh")},
    **{name: getattr(F, name) for name in ("logsigmoid", "softsign", "silu", "mish", "hardswish", "elu", "gelu")},
    **{name: getattr(torch, name) for name in ("exp", "square", "abs", "neg")},
    "celu 0.3": lambda x: F.celu(x, 0.3),
    "elu 2.7": lambda x: F.elu(x, 2.7),
    "leaky relu": lambda x: F.leaky_relu(x, 0.3),
    "leaky relu, hardly": lambda x: F.leaky_relu(x, 1.2345e-40),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "softplus 2.5": lambda x: F.softplus(x, 2.5),
    "softplus to 75": lambda x: F.softplus(x, 1, 75),
    "cube": lambda x: x**3,
    "to the 31st": lambda x: x**31,
    "plus": lambda x: x + 0.1,
    "minus": lambda x: 0.7 - x,
    "times": lambda x: x * -0.3,
    "through": lambda x: x / 0.7,
    "through a tiny one": lambda x: x / 2.4e-38,
    "through a denormal": lambda x: x / 1e-38,
    "through a huge one": lambda x: x / 3e38,
    "clamp": lambda x: torch.clamp(x, -0.1, 0.7),
    "padded": lambda x: F.pad(x[:, None], (1, 0), value=0.1),
    "normalised": lambda x: F.batch_norm(
        x[:, None], torch.tensor([0.3]), torch.tensor([0.7]), torch.tensor([1.3]), torch.tensor([-0.2])
    ),
    "normalised, huge": lambda x: F.batch_norm(
        x[:, None], torch.tensor([-1e30]), torch.tensor([1e-30]), torch.tensor([1e-20]), None
    ),
}
TWO_AT_ONCE = {  # of neighbours
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(1),
    "average pool": lambda x: F.avg_pool1d(x[:, None], 7, 3, 2),
    "adaptive": lambda x: F.adaptive_avg_pool1d(x[:, None], 3),
    "maxima": lambda x: F.max_pool1d(x[:, None], 3),
    "nearest": lambda x: F.interpolate(x[:, None], size=13),
    "linear": lambda x: F.interpolate(x[:, None], size=13, mode="linear"),
    "area": lambda x: F.interpolate(x[:, None], size=5, mode="area"),
    "stacked": lambda x: torch.stack([x, 2 * x + 1]),
}
# Nothing is rounded, limits of 6, 1 and -1 included; or nothing is guaranteed.
EXACT = ("relu", "relu6", "hardtanh", "abs", "neg", "maxima", "nearest", "through a denormal")


def numbers(count: int = 1 << 17) -> Tensor:
    """Of every size: random bits; where functions bend; where exp over- or underflows."""
    draw = generator()
    bits = torch.randint(-(2**31), 2**31, (count,), generator=draw).to(torch.int32).view(torch.float32)
    scales = [torch.randn(count // 4, generator=draw) * scale for scale in (1e-3, 0.1, 1.0, 3.0, 10.0, 50.0)]
    ends = [torch.linspace(-110, -80, count // 8), torch.linspace(80, 90, count // 8), torch.tensor([0.0, -0.0])]
    return torch.cat([bits[bits.isfinite()], *scales, *ends])


def missed(function: Callable[[Any], Any], x: Tensor, box: Box, flush: bool = False) -> Tensor:
    """Where the executed value is outside."""  # [...] bool
    torch.set_flush_denormal(flush)
    value = function(x.clone())
    torch.set_flush_denormal(False)
    bound = function(box)
    outside: Tensor = (value < bound.lower) | (value > bound.upper) | (value.isnan() & ~bound.lower.isnan())
    return outside


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_of_every_size(name: str, flush: bool) -> None:
    x = numbers()
    for part in (x, x[1::3].contiguous()[:-1]):  # other lengths take other paths through vectorised code
        assert not missed(FUNCTIONS[name], part, SoundBox.enclosing(Box(part, part.clone())), flush).any()


@pytest.mark.parametrize("name", TWO_AT_ONCE)
def test_neighbours_of_every_size(name: str) -> None:
    x = numbers()
    x = x[: len(x) // 40 * 40].reshape(-1, 40)
    near = torch.randn(500, 40, generator=generator()) * 2.0 ** torch.randint(-20, 20, (500, 1), generator=generator())
    for part in (x, near):
        for flush in (False, True):
            assert not missed(TWO_AT_ONCE[name], part, SoundBox.enclosing(Box(part, part.clone())), flush).any()


@pytest.mark.parametrize("name", [*FUNCTIONS, *TWO_AT_ONCE])
def test_without_widening_these_tests_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ulps, "widened", lambda box, *_: box)
    x = numbers()
    x = x if name in FUNCTIONS else x[: len(x) // 40 * 40].reshape(-1, 40)
    found = missed({**FUNCTIONS, **TWO_AT_ONCE}[name], x, SoundBox.enclosing(Box(x, x.clone()))).any()
    assert found == (name not in EXACT)


@given(st.sampled_from(sorted(FUNCTIONS)), st.floats(-20, 20, width=32), st.floats(0, 5, width=32))
def test_intervals(name: str, low: float, width: float) -> None:
    box = Box(torch.tensor([low]), torch.tensor([low + width]))
    bound = FUNCTIONS[name](SoundBox.enclosing(box))
    for z in torch.linspace(low, float(box.upper), 33).clamp(low, float(box.upper)):
        value = FUNCTIONS[name](z.reshape(1))
        assert not ((value < bound.lower) | (value > bound.upper)).any()  # nor are NaN, where there is no guarantee


@pytest.mark.parametrize("name", [*FUNCTIONS, *TWO_AT_ONCE])
def test_nan_stays_nan(name: str) -> None:
    """No guarantee is not mended by a function that swallows it."""
    lost = torch.full((40,) if name in FUNCTIONS else (2, 40), math.nan, dtype=torch.float64)
    out = {**FUNCTIONS, **TWO_AT_ONCE}[name](SoundBox.of(lost, lost.clone()))
    kept = out.lower.isnan() | out.upper.isnan()
    assert kept[..., 1:].all() if name == "padded" else kept.all()


@pytest.mark.parametrize("name", ["hardswish", "gelu", "silu", "exp", "normalised, huge", "to the 31st"])
def test_what_may_overflow_on_the_way_guarantees_nothing(name: str) -> None:
    huge = torch.tensor([3e38, -3e38])
    out = FUNCTIONS[name](SoundBox.enclosing(Box(huge, huge.clone())))
    assert out.lower.isnan().any() or bool((out.lower == 0).all())


def test_float32_cannot_hold_it() -> None:
    for x in (Box(torch.tensor([2e38]), torch.tensor([3e38])),):
        for function in (lambda z: z + 2e38, lambda z: z * 2.0, lambda z: z / 0.1, torch.square, lambda z: z + 1e300):
            assert function(SoundBox.enclosing(x)).upper.isnan().all()


def test_softplus_with_a_threshold_beyond_what_exp_can_hold() -> None:
    box = Box(torch.tensor([90.0]), torch.tensor([91.0]))
    assert F.softplus(box.upper, 1, 100).isinf()  # this is why
    with pytest.raises(UnsupportedOperation, match="exp overflows in float32"):
        F.softplus(SoundBox.enclosing(box), 1, 100)


def test_widening_is_outward_and_small() -> None:
    box = SoundBox.enclosing(Box(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([-0.5, 0.0, 2.0])))
    wider = widened(box, 2.0**-24, 2.0**-20)
    assert (wider.lower < box.lower).all()
    assert (wider.upper > box.upper).all()
    assert (wider.upper - box.upper < 2.0**-19).all()


def test_every_rule_says_how_it_rounds() -> None:
    """Except what changes the precision of a network."""
    unknown = {getattr(function, "__name__", "") for function in RULES if function not in ROUNDINGS}
    assert unknown <= {"double"}


def test_a_denormal_may_be_flushed_before_it_is_seen() -> None:
    tiny = torch.tensor([1e-40, -1e-40, 0.0, 1.0])
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        box = SoundBox.enclosing(Box(tiny, tiny.clone()))
        torch.set_flush_denormal(False)
        for value in (tiny.double(), torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)):
            assert ((box.lower <= value) & (value <= box.upper)).all()
        assert (box.upper - box.lower).max() < 1e-37
