"""The same bounds, sound in floating point: they hold for what the network answers when it is *executed* in float32.

A `SoundBox` holds float64 ends. It goes through the same table of rules as a `Box`, in float64, and each answer is then
widened by what the function's rounding can add, which the table `ROUNDINGS` knows. It keeps one promise:

    x in box  =>  every float32 value that an execution of function(x) may give lies in the answer,

and so does that value with denormals flushed to zero; in any order of summation, with fused multiply-add or without. One
operation in float32:  fl(a op b) = (a op b)(1 + d) + e,  |d| <= u = 2^-24,  |e| <= 2^-126.  A sum of n products:

    |fl(w x) - w x| <= gamma_n |w| |x|,   gamma_n = n u / (1 - n u)         (Higham 2002, sections 3.1 and 4.2)

docs/soundness.md states the theorem and proves it layer by layer. The bound's own float64 errors (u' = 2^-53) are
covered by SPARE. A value that may exceed float32 becomes NaN here, and a NaN is no guarantee in the end.
"""

import math
from collections.abc import Callable
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.bounds.interval import named, refuse_boxes
from certood.boxes import Affine, Box
from certood.errors import UnsupportedOperation

UNIT = 2.0**-24  # u: relative error of one float32 operation
SPARE = 1 + 2.0**-20  # float64 makes errors 2^29 times smaller, and this allows for 2^9 times as many of them
LEAST = 2.0**-126  # what flushing a denormal may change; the smallest normal number of float32
LARGEST = torch.finfo(torch.float32).max
MOST_TERMS = 2**23  # n u <= 1/2, so gamma_n <= 1

Bound = Callable[..., Any]
ROUNDINGS: dict[Any, Callable[..., Any]] = {}


def rounding(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how these functions round. Called with the function's exact rule first, then with its arguments."""

    def register(sound: Callable[..., Any]) -> Callable[..., Any]:
        ROUNDINGS.update(dict.fromkeys(functions, sound))
        return sound

    return register


def gamma(terms: int) -> float:
    """The relative error of a sum of so many float32 terms in any order, and this bound's own."""
    if terms > MOST_TERMS:
        raise UnsupportedOperation(f"a sum of {terms} float32 terms has no useful error bound: at most {MOST_TERMS}")
    return terms * UNIT / (1 - terms * UNIT) * SPARE


@final
class SoundBox(Box):
    """All float32 values that an execution may give; the ends are float64."""

    __slots__ = ()

    @classmethod
    def enclosing(cls, box: Box) -> "SoundBox":
        """The float32 inputs of a Box, each with its denormals as they are or flushed."""
        if box.dtype != torch.float32:
            raise UnsupportedOperation(
                f"a sound bound is one for float32; this Box is {box.dtype}: call float() on images and network"
            )
        lower, upper = box.lower.double(), box.upper.double()
        lower = torch.where((lower > 0) & (lower < LEAST), 0.0, lower)
        upper = torch.where((upper < 0) & (upper > -LEAST), 0.0, upper)
        return cls.of(*_representable(lower, upper))

    @property
    def dtype(self) -> torch.dtype:
        """What the network asks for when it makes a constant: it is executed in float32."""
        return torch.float32

    @classmethod
    def _apply(cls, function: Any, bound: Bound, args: Any, kwargs: Any) -> Any:
        sound = ROUNDINGS.get(function)
        if sound is None:
            name = torch.overrides.resolve_name(function) or repr(function)
            raise UnsupportedOperation(
                f"no sound bound for {name}: certood has a rule for it, but does not know how it rounds. Replace it, "
                f"leave out sound=True, or say how with certood.bounds.rounding (docs/adding_a_rule.md)"
            )
        found = sound(bound, *exactly(args), **{key: exactly(value) for key, value in kwargs.items()})
        return tuple(map(cls._wrap, found)) if isinstance(found, tuple) else cls._wrap(found)

    @classmethod
    def _wrap(cls, box: Box) -> "SoundBox":
        return box if isinstance(box, cls) else cls.of(box.lower, box.upper, box._source, box._aliased)


def exactly(value: Any) -> Any:
    """A constant of a float32 network, as float64; what would change the precision of the network is refused."""
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            return value
        if value.dtype == torch.float32:
            return value.detach().double()
        raise UnsupportedOperation(
            f"a sound bound is one for float32; a constant of the network is {value.dtype}: call network.float()"
        )
    if isinstance(value, torch.dtype):
        if value == torch.float32:
            return torch.float64
        raise UnsupportedOperation(f"a sound bound is one for float32; the network goes over to {value}")
    if isinstance(value, list | tuple):
        return type(value)(map(exactly, value)) if type(value) in (list, tuple) else value
    if isinstance(value, Box) and not isinstance(value, SoundBox):
        raise UnsupportedOperation("an ordinary Box among sound ones")
    return value


def widened(box: Box, relative: float, absolute: float | Tensor = 0.0) -> Box:
    """Both ends outward by `relative` times their size and `absolute`; NaN where float32 may overflow."""
    relative, absolute = relative * SPARE, absolute * SPARE + 4 * LEAST
    lower, upper = box.lower, box.upper
    lower = torch.sub(lower, lower.abs().mul_(relative).add_(absolute))
    upper = torch.add(upper, upper.abs().mul_(relative).add_(absolute))
    return Box.of(*_representable(lower, upper))


def _representable(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    if lower.numel() and not bool((lower.amin() > -LARGEST) & (upper.amax() < LARGEST)):
        lost = ~((lower > -LARGEST) & (upper < LARGEST))
        return lower.masked_fill(lost, torch.nan), upper.masked_fill(lost, torch.nan)
    return lower, upper


def size_of(box: Box) -> Tensor:
    """max |z| over the box, coordinate by coordinate."""
    return torch.maximum(box.lower.abs(), box.upper.abs())


def per_sample(values: Tensor) -> Tensor:
    """The largest value of each sample, in a shape that fits any tensor of as many dimensions."""
    return values.amax(tuple(range(1, values.ndim)), keepdim=True) if values.ndim > 1 else values


# ---- sums of products ------------------------------------------------------------------------------------------------


def _products(
    apply: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    box: Box,
    weight: Tensor,
    bias: Tensor | None,
    terms: int,
    over: tuple[int, ...],
    batched: bool,
) -> Box:
    """c' = W c + b,  r' = |W| (r + gamma (|c| + r)) + gamma |b| + underflow; `over`: the axes of W that are summed."""
    g = gamma(terms + 2)
    size, offset = weight.abs(), None if bias is None else bias.abs()
    centre, radius = box.centre, box.radius
    reach = centre.abs().mul_(g).add_(radius, alpha=1 + g)
    centre = apply(centre, weight, bias)
    radius = apply(reach, size, None if offset is None else offset.mul(g))
    if not centre.numel():
        return Box.of(centre, radius)
    largest = torch.maximum(_largest(-box.lower, batched), _largest(box.upper, batched))  # of |x|
    largest = largest.reshape(-1, *[1] * (centre.ndim - 1))
    beyond = size.sum(over).amax() * largest + (0 if offset is None else offset.amax())  # no partial sum exceeds it
    underflow = 2.0**3 * LEAST * (terms + 1) * (1 + largest + size.amax())
    radius.add_(torch.where(beyond < LARGEST / 2, underflow, torch.nan))
    return Box.of(centre - radius, centre.add_(radius))


def _largest(values: Tensor, batched: bool) -> Tensor:
    return values.flatten(1).amax(1) if batched else values.amax()


def _convolution(function: Callable[..., Tensor], transposed: bool) -> Callable[..., Box]:
    def sound(_: Bound, box: Any, weight: Any, bias: Any = None, *rest: Any, **more: Any) -> Box:
        refuse_boxes(function.__name__, weight, bias)

        def apply(x: Tensor, matrix: Tensor, offset: Tensor | None) -> Tensor:
            return function(x, matrix, offset, *rest, **more)

        summed = (0, *range(2, weight.ndim)) if transposed else tuple(range(1, weight.ndim))
        terms = math.prod(weight.shape[axis] for axis in summed)  # of a transposed one in groups fewer
        return _products(apply, box, weight, bias, terms, summed, batched=box.ndim == weight.ndim)

    return sound


for _n in (1, 2, 3):
    for _name, _transposed in ((f"conv{_n}d", False), (f"conv_transpose{_n}d", True)):
        rounding(getattr(F, _name))(_convolution(getattr(F, _name), _transposed))


@rounding(F.linear)
def _linear(_: Bound, box: Any, weight: Any, bias: Any = None) -> Box:
    refuse_boxes("linear", weight, bias)
    out = _products(F.linear, box, weight, bias, weight.shape[-1], (-1,), batched=box.ndim > 1)
    features = Box.of(box.lower.clone(), box.upper.clone())  # a copy, for the network may change its own in place
    return Box.of(out.lower, out.upper, source=Affine(features, weight, bias))


@rounding(*named("matmul", "mm", "bmm"))
def _matmul(_: Bound, left: Any, right: Any) -> Box:
    if isinstance(left, Box):
        refuse_boxes("matmul", right)
        over = (max(right.ndim - 2, 0),)
        return _products(lambda x, matrix, _: x @ matrix, left, right, None, left.shape[-1], over, batched=False)
    return _products(lambda x, matrix, _: matrix @ x, right, left, None, left.shape[-1], (-1,), batched=False)


def logit_errors(out: Box) -> Tensor:
    """How far each executed logit may be from its value: the gap of two is off by the sum of theirs.  # [N, K]"""
    if out.source is None:  # the ends hold the executed logits; what is left is the rounding of u_k - l_l in float64
        return size_of(out) * 2.0**-50
    features, weight, bias, _ = out.source
    terms = weight.shape[1]
    size = size_of(features)
    errors = F.linear(size, weight.abs(), None if bias is None else bias.abs()) * gamma(terms + 2)
    errors += 2.0**3 * LEAST * (terms + 1) * (1 + per_sample(size) + weight.abs().amax())
    return torch.where(out.lower.isnan() | out.upper.isnan(), torch.nan, errors)
