"""How each function rounds that is no sum of products: what is exact, and how many units it may be off.

u = 2^-24. One ulp of a float32 is at most 2 u of its value. Assumed: exp, log1p, expm1, tanh, erf and pow of every
device are within 4 ulp (glibc and SLEEF promise 1, CUDA 2, powf 4; oneDNN's erf is within 1.5e-7). docs/soundness.md
counts the operations of each line. Scalars of a call (a slope, a limit) are rounded to float32 as well: one u.

What is no sum may still overflow on its way to a harmless value: torch computes x * 6 / 6 and x * (1 + erf(x)) / 2. So
inputs of these functions stay below MODERATE, or there is no guarantee.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.bounds.interval import ADAPTIVE_MAXIMA, MAXIMA, VIEWS, named, refuse_boxes
from certood.bounds.rounding import LARGEST, LEAST, SPARE, UNIT, Bound, gamma, per_sample, rounding, size_of, widened
from certood.boxes import Box
from certood.errors import UnsupportedOperation


def _exact(bound: Bound, *args: Any, **more: Any) -> Any:
    """Moves, selects, negates: no arithmetic."""
    return bound(*args, **more)


MODERATE = 2.0**100

EXACT = ("relu", "neg", "abs", "clone", "repeat", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
_VIEWS = [name for name in VIEWS if name not in ("float", "double")]
rounding(*named(*EXACT, "feature_alpha_dropout", *MAXIMA, *_VIEWS))(_exact)
rounding(*(getattr(F, name) for name in ADAPTIVE_MAXIMA))(_exact)


@rounding(Tensor.float)
def _float(_: Bound, box: Box) -> Box:
    """A float32 execution is float32 already; the Box keeps its float64 ends."""
    box.alias()
    return Box.of(box.lower, box.upper, aliased=True)


def _within(relative: float, absolute: float, bound: Bound, *args: Any, **more: Any) -> Any:
    return widened(bound(*args, **more), relative * UNIT, absolute * UNIT)


def _curved(relative: float, absolute: float, bound: Bound, box: Box, *rest: Any, **more: Any) -> Box:
    return widened(bound(_moderate(box), *rest, **more), relative * UNIT, absolute * UNIT)


def _moderate(box: Box) -> Box:
    lost = torch.where(size_of(box) < MODERATE, 0.0, torch.nan)
    return Box.of(box.lower + lost, box.upper + lost)


# (relative, absolute) error of the value in units of u; comments say of what it is made
_WITHIN: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("maximum", "minimum", "clamp", "clip", "hardtanh", "relu6", "pad"), (1, 0)),  # a limit's rounding
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), (0, 0)),
    "square": (1, 0),
}
_CURVED: dict[str, tuple[float, float]] = {
    "exp": (8, 0),
    "sigmoid": (12, 1),  # 1 / (1 + exp(-x)): 8 + 1 + 1
    "tanh": (12, 24),  # also as 2 / (1 + exp(-2 x)) - 1, as compilers write it: 2 (8 + 1 + 1) + 1
    "softsign": (4, 0),  # two operations
    "hardsigmoid": (4, 8),  # min(max(x + 3, 0), 6) / 6
    "logsigmoid": (20, 20),  # min(x, 0) - log1p(exp(-|x|)): 8 + 8 + 1
    "selu": (24, 48),  # 1.0507 (max(x, 0) + 1.6733 (exp(x) - 1)): (8 + 1) 1.76, the rest relative
    "silu": (16, 16),  # x / (1 + exp(-x))
    "mish": (40, 40),  # x tanh(log1p(exp(x))): 8 + 8 + 8 + 1, each with a condition number of at most 1
    "hardswish": (8, 8),  # x min(max(x + 3, 0), 6) / 6
}
for _name, _units in _WITHIN.items():
    rounding(*named(_name))(partial(_within, *_units))
for _name, _units in _CURVED.items():
    rounding(*named(_name))(partial(_curved, *_units))


@rounding(*named("leaky_relu"))
def _leaky(bound: Bound, box: Any, negative_slope: float = 0.01) -> Box:
    """Slope and product; a slope below 2^-126 has fewer bits, or none."""
    return widened(bound(box, negative_slope), 2 * UNIT, LEAST * size_of(box))


@rounding(*named("pow"))
def _power(bound: Bound, box: Any, exponent: Any) -> Box:
    """By powf, or by exponent - 1 products."""
    units = max(16, 2 * exponent) if isinstance(exponent, int) else math.nan
    return widened(bound(box, exponent), units * UNIT)


def _exponential(bound: Bound, box: Any, alpha: float = 1.0) -> Box:
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0): off by (8 + 1 + 1) u alpha, where x / alpha adds 3 u / e."""
    return widened(bound(_moderate(box), alpha), 16 * UNIT, 16 * UNIT * abs(alpha))


rounding(*named("elu", "celu"))(_exponential)


@rounding(F.gelu)
def _gelu(bound: Bound, box: Any, approximate: str = "none") -> Box:
    """x / 2 (1 + erf(x / sqrt 2)): near -inf the bracket is a small difference, off by its own rounding times x."""
    return widened(bound(_moderate(box), approximate=approximate), 16 * UNIT, 32 * UNIT * size_of(box))


@rounding(F.softplus)
def _softplus(bound: Bound, box: Any, beta: float = 1, threshold: float = 20) -> Box:
    """log1p(exp(beta x)) / beta. Where beta x is close to the threshold, rounding decides: so x is widened first."""
    if threshold > 80:
        raise UnsupportedOperation(f"softplus with threshold={threshold} has no sound bound: exp overflows in float32")
    box = _moderate(box)
    around = Box.of(*((end + sign * (8 * UNIT * end.abs() + LEAST)) for sign, end in ((-1, box.lower), (1, box.upper))))
    return widened(bound(around, beta, threshold), 40 * UNIT, 40 * UNIT / beta)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _constant(*values: Any) -> Any:
    """The size of what is no Box, whose rounding to float32 counts where it is a Python number or whole numbers."""
    found = [value for value in values if not isinstance(value, Box)]
    return sum(_magnitude(value) for value in found) if found else 0.0


def _magnitude(value: Any) -> Tensor:
    return torch.as_tensor(value).double().abs()


@rounding(*named("add", "sub", "subtract"))
def _sum(bound: Bound, left: Any, other: Any, **more: Any) -> Box:
    return widened(bound(left, other, **more), UNIT, UNIT * _constant(left, other))


@rounding(*named("mul", "multiply"))
def _product(bound: Bound, left: Any, other: Any) -> Box:
    box, factor = (left, other) if isinstance(left, Box) else (other, left)
    refuse_boxes("multiplication", factor)
    return widened(bound(left, other), 2 * UNIT, LEAST * (size_of(box) + _magnitude(factor)))


@rounding(*named("div", "divide", "true_divide"))
def _quotient(bound: Bound, box: Any, divisor: Any, **more: Any) -> Box:
    """Also as x times 1 / divisor, which must not overflow; nor may the divisor be flushed to 0."""
    refuse_boxes("division", divisor)
    size = _magnitude(divisor)
    out = widened(bound(box, divisor, **more), 4 * UNIT, LEAST * (size_of(box) + 1 / size))
    lost = torch.where((size >= 2 * LEAST) & (size < LARGEST), 0.0, torch.nan).to(out.lower.device)
    return Box.of(out.lower + lost, out.upper + lost)


@rounding(F.batch_norm)
def _batch_norm(
    bound: Bound, box: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Box:  # fmt: skip
    """As (x - mean) / sqrt(variance + eps) weight + bias, or as x alpha + beta with beta = bias - mean alpha."""
    out = bound(box, mean, variance, weight, bias, training, momentum, eps)
    shape = (-1, *[1] * (box.ndim - 2))
    usual = (variance >= 0) & (variance + eps > 1 / MODERATE)  # or its root may vanish in float32
    inverse = torch.where(usual, torch.rsqrt(variance + eps), torch.nan)  # [C]
    slope = inverse * (1.0 if weight is None else weight.abs())
    apart = size_of(box) + mean.abs().reshape(shape)
    size = apart * slope.reshape(shape) + (0.0 if bias is None else bias.abs().reshape(shape))
    largest = torch.maximum(size, torch.maximum(apart, apart * inverse.reshape(shape)))  # on the way
    size = torch.where(largest < LARGEST / 2, size, torch.nan)
    factors = slope.amax() + (0.0 if weight is None else weight.abs().amax())
    return widened(out, UNIT, 16 * UNIT * size + 16 * LEAST * (1 + size_of(box) + mean.abs().amax() + factors))


# ---- averages --------------------------------------------------------------------------------------------------------


def _average(terms: Callable[..., int], bound: Bound, box: Any, *rest: Any, **more: Any) -> Box:
    """A sum of n terms in any order, and a division: gamma_(n + 2) times the average of the sizes."""
    out = bound(box, *rest, **more)
    count = terms(box, out, *rest, **more)
    size = size_of(box)
    across = bound(Box.of(size, size), *rest, **more).upper
    whole = size.nan_to_num(0).sum()  # before the division; of all samples, for all may be summed
    lost = torch.where(whole < LARGEST / 2, 0.0, torch.nan)
    return widened(out, UNIT, gamma(count + 3) * across + 4 * LEAST * count + lost)


def _reduced(box: Box, out: Box, *_: Any, **__: Any) -> int:
    return int(box.numel() // max(1, out.numel()))


def _window(dimensions: int, box: Box, out: Box, kernel_size: Any, *_: Any, **__: Any) -> int:
    sizes = (kernel_size,) * dimensions if isinstance(kernel_size, int) else tuple(kernel_size)
    return math.prod(sizes * dimensions if len(sizes) == 1 else sizes)


def _adaptive(dimensions: int, box: Box, out: Box, *_: Any, **__: Any) -> int:
    pairs = zip(box.shape[-dimensions:], out.shape[-dimensions:], strict=True)
    return math.prod(-(-inner // max(1, outer)) + 1 for inner, outer in pairs)


rounding(*named("mean", "sum"))(partial(_average, _reduced))
for _n in (1, 2, 3):
    rounding(*named(f"avg_pool{_n}d"))(partial(_average, partial(_window, _n)))
    rounding(*named(f"adaptive_avg_pool{_n}d"))(partial(_average, partial(_adaptive, _n)))


@rounding(F.interpolate)
def _interpolate(
    bound: Bound, box: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **more: Any
) -> Box:
    """Nearest: which pixel it is, float32 decides. Linear: places are off by a few u of the width; a sum else."""
    dimensions = box.ndim - 2
    if mode == "area":
        return _average(partial(_adaptive, dimensions), bound, box, size, scale_factor, mode, **more)
    if mode.startswith("nearest"):
        out = bound(
            Box.of(_float32(box.lower, -math.inf), _float32(box.upper, math.inf)), size, scale_factor, mode, **more
        )
        return widened(Box.of(out.lower.double(), out.upper.double()), 0)
    if more.get("antialias"):
        raise UnsupportedOperation("interpolation with antialias=True has no sound bound: its weights are rounded")
    out = bound(box, size, scale_factor, mode, **more)
    widest = max(box.shape[2:]) + max(out.shape[2:])
    return widened(out, UNIT, dimensions * (16 * widest + 16) * UNIT * SPARE * per_sample(size_of(box)))


def _float32(end: Tensor, towards: float) -> Tensor:
    near = end.float()
    return torch.nextafter(near, torch.full_like(near, towards))
