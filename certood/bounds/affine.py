"""The hot path of every interval pass: a linear layer or a 2-D convolution of a Box as one autograd function.

    d = u - l,  c = l + d / 2;    c' = W c + b,  d' = |W| d;    l' = c' - d' / 2,  u' = c' + d' / 2

The same sums as in the rules of `bounds/interval.py`, which torch differentiates one operation at a time, with the
width d = 2 r for the radius. What is saved here is memory traffic: halves are exact and cost no pass of their own,
scratch is used again, and the gradient of the weight, where a large layer spends its time,

    dW = dc' c^T + sgn(W) (dd' d^T),

is gathered in one buffer. Under autocast both products are computed in its precision and the gradients of W in W's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Ends = tuple[Tensor, Tensor]
SIGNS = 2**18  # numbers of a weight whose signs are held at once: what a cache holds


class Layer(NamedTuple):
    """What one layer of an interval pass computed."""

    ends: Ends
    versions: tuple[int, int]
    weight: Tensor  # in the precision of the products
    size: Tensor  # |weight|


@final
class Kept:
    """An interval pass that goes again over some of its samples, now with gradients, and computes no product twice.

    >>> from certood.boxes import Box
    >>> network, box = torch.nn.Linear(2, 3), Box(torch.zeros(4, 2), torch.ones(4, 2))
    >>> with torch.no_grad(), keeping(4) as kept:
    ...     bounds = network(box).upper.amax(1)
    >>> rows = bounds.argsort()[:2]
    >>> with kept.again(rows):
    ...     network(box.select(rows)).upper.requires_grad
    True
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.layers: list[Layer] = []
        self.rows: Tensor | None = None

    @contextmanager
    def again(self, rows: Tensor) -> Iterator[None]:
        """Inside, the same network on the Box of these rows takes its layers' answers from the first pass."""
        self.rows = rows
        token = ACTIVE.set(self)
        try:
            yield
        finally:
            ACTIVE.reset(token)
            self.layers.clear()

    def store(self, ends: Ends, weight: Tensor, size: Tensor) -> None:
        self.layers.append(Layer(ends, (ends[0]._version, ends[1]._version), weight, size))

    def next(self) -> Layer | None:
        """The next layer, its ends those of the chosen samples; None where they are not what was computed."""
        if self.rows is None or not self.layers:
            return None
        layer = self.layers.pop(0)
        if len(layer.ends[0]) != self.samples:
            return None
        if layer.versions != (layer.ends[0]._version, layer.ends[1]._version):  # changed in place since
            return None
        lower, upper = (chosen(end, self.rows) for end in layer.ends)
        return layer._replace(ends=(lower, upper))


def chosen(images: Tensor, rows: Tensor) -> Tensor:
    """Samples in the layout of the whole."""
    if images.ndim == 4 and images.is_contiguous(memory_format=torch.channels_last):
        return images.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
    return images.index_select(0, rows)


ACTIVE: ContextVar[Kept | None] = ContextVar("kept", default=None)


@contextmanager
def keeping(samples: int) -> Iterator[Kept]:
    kept = Kept(samples)
    token = ACTIVE.set(kept)
    try:
        yield kept
    finally:
        ACTIVE.reset(token)


def centred(lower: Tensor, upper: Tensor) -> Ends:
    """Centre and width. Where u - l overflows, both are infinite, and the bound no number or no bound."""
    width = upper - lower
    return torch.add(lower, width, alpha=0.5), width


def apart(centre: Tensor, width: Tensor) -> Ends:
    """The ends around a centre, which is used up."""
    upper = torch.add(centre, width, alpha=0.5)
    return centre.sub_(width, alpha=0.5), upper


def passed(
    ctx: Any, product: Any, lower: Tensor, upper: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any
) -> Ends:
    """The forward half of both layers."""
    kept = ACTIVE.get()
    layer = None if kept is None else kept.next()
    lower, upper, used, offset = lowered(lower, upper, weight, bias)
    if layer is not None:
        used = layer.weight
    size = used.abs() if layer is None else layer.size
    centre, width = centred(lower, upper)
    ctx.save_for_backward(centre, width, used, size)
    if layer is not None:
        return layer.ends
    ends = apart(product(centre, used, offset, *settings), product(width, size, None, *settings))
    if kept is not None and kept.rows is None:
        kept.store(ends, used, size)
    return ends


@final
class LinearEnds(torch.autograd.Function):
    """The ends of W z + b for z between two ends, samples in rows."""

    @staticmethod
    def forward(ctx: Any, lower: Tensor, upper: Tensor, weight: Tensor, bias: Tensor | None) -> Ends:
        ctx.grad_dtype, ctx.biased = weight.dtype, bias is not None
        return passed(ctx, F.linear, lower, upper, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_lower: Tensor, of_upper: Tensor) -> tuple[Tensor | None, ...]:
        centre, width, used, size = ctx.saved_tensors
        of_centre, of_radius = of_lower + of_upper, of_upper - of_lower  # twice what d' gets
        of_weight = None
        if ctx.needs_input_grad[2]:
            of_weight = halved_signs(of_radius.T @ width, used).addmm_(of_centre.T, centre).to(ctx.grad_dtype)
        of_bias = of_centre.sum(0).to(ctx.grad_dtype) if ctx.biased and ctx.needs_input_grad[3] else None
        if not any(ctx.needs_input_grad[:2]):
            return None, None, of_weight, of_bias
        return *of_ends(of_centre @ used, of_radius @ size), of_weight, of_bias


@final
class ConvolutionEnds(torch.autograd.Function):
    """The ends of a 2-D convolution."""

    @staticmethod
    def forward(ctx: Any, lower: Tensor, upper: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Ends:
        ctx.grad_dtype, ctx.settings = weight.dtype, settings
        ctx.biases = None if bias is None else bias.shape
        return passed(ctx, F.conv2d, lower, upper, weight, bias, *settings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_lower: Tensor, of_upper: Tensor) -> tuple[Tensor | None, ...]:
        centre, width, used, size = ctx.saved_tensors
        of_centre, of_radius = of_lower + of_upper, of_upper - of_lower  # twice what d' gets
        wanted = [
            any(ctx.needs_input_grad[:2]),
            ctx.needs_input_grad[2],
            ctx.biases is not None and ctx.needs_input_grad[3],
        ]
        stride, padding, dilation, groups = ctx.settings
        rest = (stride, padding, dilation, False, [0, 0], groups)
        backward = torch.ops.aten.convolution_backward
        first, of_weight, of_bias = backward(of_centre, centre, used, ctx.biases, *rest, wanted)
        second, of_size, _ = backward(of_radius, width, size, None, *rest, [*wanted[:2], False])
        if of_weight is not None:
            of_weight = of_weight.add_(halved_signs(of_size, used)).to(ctx.grad_dtype)
        of_bias = None if of_bias is None else of_bias.to(ctx.grad_dtype)
        ends = of_ends(first, second) if wanted[0] else (None, None)
        return *ends, of_weight, of_bias, *[None] * 4


def of_ends(of_centre: Tensor, twice_of_width: Tensor) -> Ends:
    """Gradients by l and u: those by c half and half, those by d against each other. What is given is used up."""
    of_upper = torch.lerp(twice_of_width, of_centre, 0.5)
    return of_centre.sub_(of_upper), of_upper


def halved_signs(gradient: Tensor, weight: Tensor) -> Tensor:
    """In place: times half the sign of the weight, 0 where it is 0, as torch differentiates |W|."""
    rows = max(1, SIGNS // max(1, weight[0].numel()))
    for part, signs in zip(torch.split(gradient, rows), torch.split(weight, rows), strict=True):
        part.mul_(signs.sgn().mul_(0.5))
    return gradient


def lowered(lower: Tensor, upper: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """As autocast, where it is on, would pass them to a product: not float64."""
    device = lower.device.type
    if not torch.is_autocast_enabled(device) or torch.float64 in (lower.dtype, weight.dtype):
        return lower, upper, weight, bias  # type: ignore[return-value]
    dtype = torch.get_autocast_dtype(device)
    return tuple(each if each is None else each.to(dtype) for each in (lower, upper, weight, bias))  # type: ignore
