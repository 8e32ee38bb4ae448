"""The same bounds, sound in floating point: they hold for what the network answers when it is *executed* in float32.

A `SoundBox` holds float64 ends. It goes through the same table of rules as a `Box`, in float64, and each answer is then
widened by what the function's rounding can add, which the table `ROUNDINGS` knows. It keeps one promise:

    x in box  =>  every float32 value that an execution of function(x) may give lies in the answer,

and so does that value with denormals flushed to zero; in any order of summation, with fused multiply-add or without.
One operation in float32:  fl(a op b) = (a op b)(1 + d) + e,  |d| <= u = 2^-24,  |e| <= 2^-126.  A sum of n products
is the exact one of inputs that are a little off, whatever its order (Higham 2002, sections 3.1 and 4.2):

    fl(sum_i w_i x_i) = sum_i w_i x_i (1 + d_i) + e,   |d_i| <= gamma_n = n u / (1 - n u)

docs/soundness.md states the theorem and proves it layer by layer. The bound's own float64 errors (u' = 2^-53) are
covered by SPARE. A value that may exceed float32 becomes NaN here, and a NaN is no guarantee in the end.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.bounds.convolving import convolve2d
from certood.bounds.interval import named, refuse_boxes
from certood.boxes import Affine, Box
from certood.errors import UnsupportedOperation

UNIT = 2.0**-24  # u: relative error of one float32 operation
SPARE = 1 + 2.0**-20  # float64 makes errors 2^29 times smaller, and this allows for 2^9 times as many of them
LEAST = 2.0**-126  # what flushing a denormal may change; the smallest normal number of float32
ABOVE = 1 + 4 * UNIT  # what is rounded to float32 after this factor has not become smaller
LARGEST = torch.finfo(torch.float32).max
MOST_TERMS = 2**21  # n u <= 1/8, so gamma_n <= 1/7
ROW_NUMBERS = 2**19  # of a matrix, at once in float64: 4 MB
TOGETHER = 128  # terms of a linear layer's radius that are summed in float32, before float64 goes on

Bound = Callable[..., Any]


class Rounding(NamedTuple):
    """How a function rounds, and whether its constants come as float64 or as they are."""

    sound: Callable[..., Any]
    constants: torch.dtype


ROUNDINGS: dict[Any, Rounding] = {}


def rounding(
    *functions: Any, constants: torch.dtype = torch.float64
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how these functions round. Called with the function's exact rule first, then with its arguments."""

    def register(sound: Callable[..., Any]) -> Callable[..., Any]:
        ROUNDINGS.update(dict.fromkeys(functions, Rounding(sound, constants)))
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
        lower = box.lower.double().masked_fill_(_denormal(box.lower), -LEAST)  # in its layout: see _products
        upper = box.upper.double().masked_fill_(_denormal(box.upper), LEAST)
        return cls.of(*_representable(lower, upper))

    @property
    def dtype(self) -> torch.dtype:
        """What the network asks for when it makes a constant: it is executed in float32."""
        return torch.float32

    @classmethod
    def _apply(cls, function: Any, bound: Bound, args: Any, kwargs: Any) -> Any:
        rounded = ROUNDINGS.get(function)
        if rounded is None:
            name = torch.overrides.resolve_name(function) or repr(function)
            raise UnsupportedOperation(
                f"no sound bound for {name}: certood has a rule for it, but does not know how it rounds. Replace it, "
                f"leave out sound=True, or say how with certood.bounds.rounding (docs/adding_a_rule.md)"
            )
        dtype = rounded.constants
        options = {key: constant(value, dtype) for key, value in kwargs.items()}
        found = rounded.sound(bound, *constant(args, dtype), **options)
        return tuple(map(cls._wrap, found)) if isinstance(found, tuple) else cls._wrap(found)

    @classmethod
    def _wrap(cls, box: Box) -> "SoundBox":
        return box if isinstance(box, cls) else cls.of(box.lower, box.upper, box._source, box._aliased)


def constant(value: Any, dtype: torch.dtype) -> Any:
    """A constant of a float32 network, in this dtype; what would change the precision of the network is refused."""
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            return value
        if value.dtype == torch.float32:
            return value.detach().to(dtype)
        raise UnsupportedOperation(
            f"a sound bound is one for float32; a constant of the network is {value.dtype}: call network.float()"
        )
    if isinstance(value, torch.dtype):
        if value == torch.float32:
            return torch.float64
        raise UnsupportedOperation(f"a sound bound is one for float32; the network goes over to {value}")
    if type(value) in (list, tuple):
        return type(value)(constant(each, dtype) for each in value)
    if isinstance(value, Box) and not isinstance(value, SoundBox):
        raise UnsupportedOperation("an ordinary Box among sound ones")
    return value


def _denormal(values: Tensor) -> Tensor:
    """By their bits: a processor that flushes denormals takes them for 0 when it compares and converts them, too."""
    bits = values.contiguous().view(torch.int32) & 0x7FFFFFFF
    return (bits > 0) & (bits < 0x00800000)


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

Apply = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # x, W, b -> W x + b, in the dtype of x


def _products(
    apply: Apply,
    box: Box,
    weight: Tensor,
    bias: Tensor | None,
    terms: int,
    over: tuple[int, ...],
    batched: bool,
    together: int | None = None,
) -> Box:
    """For l' = l - gamma |l|, u' = u + gamma |u|, centre c, radius r:  W c + b and |W| r + gamma |b| + underflow.

    `over` are the axes of W that are summed. The centre is computed in float64. The radius sums what is not negative,
    so that float32, which is faster, is off by no more than a factor: a sum of n such terms (`together`, or all) is at
    most fl(sum) / (1 - gamma_n) = fl(sum) (1 - n u) / (1 - 2 n u).
    """
    g, share = gamma(terms + 2), (min(terms, together or terms) + 2) * UNIT
    size, offset = weight.abs(), None if bias is None else bias.abs()
    axes = tuple(range(1, box.ndim)) if batched else tuple(range(box.ndim))
    lowest, highest = (box.lower.amin(axes), box.upper.amax(axes)) if box.numel() else (torch.zeros(()),) * 2
    if bool((lowest >= 0).all()):  # after a ReLU, which is the common case: the same in fewer passes
        centre = torch.lerp(box.lower, box.upper, (1 + g) / 2)
        reach, scale = torch.sub(box.upper, box.lower, alpha=(1 - g) / (1 + g)).float(), (1 + g) / 2
    else:
        lower, upper = torch.sub(box.lower, box.lower.abs(), alpha=g), torch.add(box.upper, box.upper.abs(), alpha=g)
        centre = lower.add_(upper).mul_(0.5)
        reach, scale = upper.sub_(centre).float(), 1.0
    centre = apply(centre, weight, bias)
    radius = apply(reach, size, None if offset is None else offset.double().mul_(g / scale).float())
    factor = scale * ABOVE * (1 - share) / (1 - 2 * share) * SPARE
    # In the layout of the radius, which float32 computed as it will the execution: that decides what a reshape copies,
    # and so what a function changes that works in place.
    lower, upper = (torch.empty_like(radius, dtype=torch.float64) for _ in range(2))
    torch.sub(centre, radius, alpha=factor, out=lower)
    torch.add(centre, radius, alpha=factor, out=upper)
    if not centre.numel():
        return Box.of(lower, upper)
    largest = torch.maximum(-lowest, highest).reshape(-1, *[1] * (centre.ndim - 1))  # of |x|
    beyond = size.sum(over, dtype=torch.float64).amax() * largest + (0 if offset is None else offset.amax())
    underflow = 2.0**5 * LEAST * (terms + 1) * (1 + largest + size.amax())
    underflow = torch.where(beyond < LARGEST / 4, underflow, torch.nan)  # no partial sum can be larger
    return Box.of(lower.sub_(underflow), upper.add_(underflow))


def _convolution(function: Callable[..., Tensor], transposed: bool) -> Callable[..., Box]:
    def sound(_: Bound, box: Any, weight: Any, bias: Any = None, *rest: Any, **more: Any) -> Box:
        refuse_boxes(function.__name__, weight, bias)

        def apply(x: Tensor, matrix: Tensor, offset: Tensor | None) -> Tensor:
            matrix, offset = matrix.to(x.dtype), None if offset is None else offset.to(x.dtype)
            plain = _plain(*rest, **more) if x.dtype == torch.float64 and function is F.conv2d and batched else None
            return convolve2d(x, matrix, offset, *plain) if plain else function(x, matrix, offset, *rest, **more)

        batched = box.ndim == weight.ndim
        summed = (0, *range(2, weight.ndim)) if transposed else tuple(range(1, weight.ndim))
        terms = math.prod(weight.shape[axis] for axis in summed)  # of a transposed one in groups fewer
        return _products(apply, box, weight, bias, terms, summed, batched)

    return sound


def _plain(
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Stride and padding of a convolution that has nothing else."""
    if isinstance(padding, str) or groups != 1 or dilation not in (1, (1, 1), [1, 1], (1,), [1]):
        return None
    down, right = (
        tuple(value) * (3 - len(value)) if not isinstance(value, int) else (value,) * 2 for value in (stride, padding)
    )
    return down, right


for _n in (1, 2, 3):
    for _name, _transposed in ((f"conv{_n}d", False), (f"conv_transpose{_n}d", True)):
        _function = getattr(F, _name)
        rounding(_function, constants=torch.float32)(_convolution(_function, _transposed))


@rounding(F.linear, constants=torch.float32)
def _linear(_: Bound, box: Any, weight: Any, bias: Any = None) -> Box:
    refuse_boxes("linear", weight, bias)
    out = _products(_in_parts, box, weight, bias, weight.shape[-1], (-1,), box.ndim > 1, TOGETHER)
    # Copies, for the network may go on to change its own in place.
    features = Box.of(box.lower.clone(), box.upper.clone())
    kept = (weight.clone(), None if bias is None else bias.clone())
    return Box.of(out.lower, out.upper, source=Affine(features, *kept))


def _in_parts(x: Tensor, matrix: Tensor, offset: Tensor | None) -> Tensor:
    """F.linear in float64: of float64 a few rows of the matrix at a time, for a large one is slow to allocate; of
    float32 a few of its columns at a time, of which float64 is the sum."""
    if x.dtype == matrix.dtype:
        parts = zip(torch.split(x, TOGETHER, -1), torch.split(matrix, TOGETHER, -1), strict=True)
        out = sum((F.linear(*part).double() for part in parts), torch.zeros((), dtype=torch.float64, device=x.device))
    elif matrix.ndim < 2:
        out = F.linear(x, matrix.to(x.dtype))
    else:
        rows = max(1, ROW_NUMBERS // max(1, matrix.shape[1]))
        out = torch.cat([F.linear(x, part.to(x.dtype)) for part in torch.split(matrix, rows)], -1)
    return out if offset is None else out + offset


@rounding(*named("matmul", "mm", "bmm"), constants=torch.float32)
def _matmul(_: Bound, left: Any, right: Any) -> Box:
    terms = left.shape[-1]
    if isinstance(left, Box):
        refuse_boxes("matmul", right)
        over = (max(right.ndim - 2, 0),)
        return _products(lambda x, matrix, _: x @ matrix.to(x.dtype), left, right, None, terms, over, batched=False)
    return _products(lambda x, matrix, _: matrix.to(x.dtype) @ x, right, left, None, terms, (-1,), batched=False)


def logit_errors(out: Box) -> Tensor:
    """How far each executed logit may be from its value: the gap of two is off by the sum of theirs.  # [N, K]"""
    if out.source is None:  # the ends hold the executed logits; what is left is the rounding of u_k - l_l in float64
        return size_of(out) * 2.0**-50
    features, weight, bias = out.source[:3]
    terms = weight.shape[1]
    size = size_of(features)
    errors = _in_parts(size, weight.abs(), None if bias is None else bias.abs()).mul_(gamma(terms + 2))
    errors += 2.0**5 * LEAST * (terms + 1) * (1 + per_sample(size) + weight.abs().amax())
    return torch.where(out.lower.isnan() | out.upper.isnan(), torch.nan, errors)
