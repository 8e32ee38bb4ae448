"""Interval bound propagation (Gowal et al. 2018): one rule per torch function, so that any network runs on a `Box`.

Every rule keeps one promise:  z in box  =>  function(z) in rule(box),  in exact arithmetic. Three kinds cover nearly
everything:

    affine      c' = f(c),  r' = |f|(r)         centre and radius: two convolutions a layer, not four
    monotone    l' = f(l),  u' = f(u)           also whatever only moves, copies or averages coordinates
    valley      l' = f(clamp(x*, l, u)),  u' = max(f(l), f(u))      falls down to x*, then rises: GELU, SiLU, |x|

The first two are here, the third is in `arithmetic.py`, with the rules of +, -, * and /. A rule takes the arguments of
its function, except `inplace`, which `Box.__torch_function__` deals with.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.bounds.affine import ConvolutionEnds, LinearEnds
from certood.boxes import RULES, Affine, Box, Rule, versions
from certood.errors import UnsupportedOperation


def rule(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the rule of these torch functions.

    >>> @rule(torch.atan, torch.Tensor.atan)
    ... def atan(box):  # rises everywhere, so the ends bound it
    ...     return Box.of(torch.atan(box.lower), torch.atan(box.upper))
    """

    def register(bound: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            RULES[function] = Rule(bound, _inplace_position(function))
        return bound

    return register


def _inplace_position(function: Any) -> int | None:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built in: it has an in-place twin instead, which has no rule
        return None
    return names.index("inplace") if "inplace" in names else None


def named(*names: str) -> list[Any]:
    """All functions of these names: networks call torch, torch.Tensor and torch.nn.functional alike."""
    found = (getattr(home, name, None) for name in names for home in (torch, Tensor, F))
    return [function for function in found if callable(function)]


def refuse_boxes(function: str, *values: Any) -> None:
    if any(isinstance(value, Box) for value in values):
        raise UnsupportedOperation(f"{function}: only one operand may depend on the input, the others must be constant")


def ends(value: Any) -> tuple[Any, Any]:
    return (value.lower, value.upper) if isinstance(value, Box) else (value, value)


# ---- affine: c' = f(c), r' = |f|(r) ----------------------------------------------------------------------------------


def _affine(
    function: Callable[..., Tensor], box: Box, weight: Tensor, bias: Any = None, *rest: Any, **more: Any
) -> Box:
    refuse_boxes(function.__name__, weight, bias)
    centre = function(box.centre, weight, bias, *rest, **more)
    radius = function(box.radius, weight.abs(), None, *rest, **more)
    return Box.of(centre - radius, centre + radius)


for _function in (F.conv1d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    rule(_function)(partial(_affine, _function))


@rule(F.conv2d)
def conv2d(
    box: Box, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Box:
    if box.ndim != 4 or isinstance(padding, str) or torch.compiler.is_compiling():
        return _affine(F.conv2d, box, weight, bias, stride, padding, dilation, groups)
    refuse_boxes("conv2d", weight, bias)
    pairs = [[value] * 2 if isinstance(value, int) else list(value) for value in (stride, padding, dilation)]
    pairs = [pair * (3 - len(pair)) for pair in pairs]
    lower, upper = ConvolutionEnds.apply(box.lower, box.upper, weight, bias, *pairs, groups)  # type: ignore[no-untyped-call]
    return Box.of(lower, upper)


@rule(F.linear)
def linear(box: Box, weight: Tensor, bias: Tensor | None = None) -> Box:
    if box.ndim != 2 or weight.ndim != 2 or torch.compiler.is_compiling():
        out = _affine(F.linear, box, weight, bias)
    else:
        refuse_boxes("linear", weight, bias)
        out = Box.of(*LinearEnds.apply(box.lower, box.upper, weight, bias))  # type: ignore[no-untyped-call]
    if box.ndim != 2 or weight.ndim != 2:  # no logits, whatever becomes of them
        return out
    lower, upper = _unchanging(box)
    counted = versions(lower, upper, weight, bias)
    features = Box.of(lower.to(weight.dtype), upper.to(weight.dtype))  # that of the weights, for mixed training
    return Box.of(out.lower, out.upper, source=Affine(features, weight, bias, (lower, upper), counted))


def _unchanging(box: Box) -> tuple[Tensor, Tensor]:
    """Its ends; copies where the network may go on to change them in place and torch does not count that."""
    if box._aliased or torch.compiler.is_compiling() or box._lower.is_inference():
        return box.lower.clone(), box.upper.clone()
    return box.lower, box.upper


@rule(*named("matmul", "mm", "bmm"))
def matmul(left: Any, right: Any) -> Box:
    if isinstance(left, Box):
        refuse_boxes("matmul", right)
        centre, radius = left.centre @ right, left.radius @ right.abs()
    else:
        centre, radius = left @ right.centre, left.abs() @ right.radius
    return Box.of(centre - radius, centre + radius)


@rule(F.batch_norm)
def batch_norm(
    box: Box,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Box:
    refuse_boxes("batch_norm", running_mean, running_var, weight, bias)
    if running_mean is None or running_var is None:
        raise UnsupportedOperation("batch norm that keeps no statistics has no bound: they depend on the batch")
    if training:
        raise UnsupportedOperation(
            "batch norm in training mode has no bound, its statistics depend on the batch: call network.eval() first"
        )
    centre = F.batch_norm(box.centre, running_mean, running_var, weight, bias, False, momentum, eps)
    slope = torch.rsqrt(running_var + eps) * (1.0 if weight is None else weight.abs())  # [C]
    radius = box.radius * slope.reshape(-1, *[1] * (box.ndim - 2))
    return Box.of(centre - radius, centre + radius)


# ---- monotone: l' = f(l), u' = f(u) ----------------------------------------------------------------------------------


def monotone(function: Callable[..., Any], box: Any, *rest: Any, aliased: bool = False, **more: Any) -> Any:
    name = getattr(function, "__name__", "function")
    refuse_boxes(name, *rest, *more.values())
    if not isinstance(box, Box):
        raise UnsupportedOperation(f"{name}: only its first operand may depend on the input")
    lower, upper = function(box.lower, *rest, **more), function(box.upper, *rest, **more)
    if isinstance(lower, Tensor):
        if not lower.is_floating_point():
            raise UnsupportedOperation(f"{name} with a result of {lower.dtype}, which wraps around, has no rule")
        return Box.of(lower, upper, aliased=aliased)
    return tuple(Box.of(*pair, aliased=aliased) for pair in zip(lower, upper, strict=True))


def shares_memory(left: Box, right: Box) -> bool:
    """Is one a view of the other? Yes where nobody can tell."""
    if torch.compiler.is_compiling():
        return True
    pairs = ((left.lower, right.lower), (left.upper, right.upper))
    try:
        return any(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for one, other in pairs)
    except RuntimeError:  # a tensor without storage
        return True


def _view(function: Callable[..., Any], box: Any, *rest: Any, **more: Any) -> Any:
    if function is Tensor.view and any(isinstance(value, torch.dtype) for value in (*rest, *more.values())):
        raise UnsupportedOperation("view as another dtype reinterprets bits: it has no rule")
    result = monotone(function, box, *rest, aliased=True, **more)
    if isinstance(result, Box) and not shares_memory(box, result):  # a copy, for no view has that shape
        return Box.of(result.lower, result.upper)
    box.alias()
    return result


ACTIVATIONS = ("relu", "relu6", "selu", "sigmoid", "hardsigmoid", "tanh", "hardtanh", "logsigmoid", "softsign", "exp")
AVERAGES = ("mean", "sum", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
MAXIMA = ("amax", "amin", "max_pool1d", "max_pool2d", "max_pool3d")
ADAPTIVE_MAXIMA = ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
COPIES = ("pad", "clone", "clamp", "clip", "repeat")
VIEWS = (
    *("flatten", "unflatten", "view", "reshape", "permute", "transpose", "movedim", "squeeze", "unsqueeze", "narrow"),
    *("contiguous", "detach", "expand", "chunk", "split", "unbind", "to", "float", "double", "__getitem__"),
    *("pixel_shuffle", "pixel_unshuffle"),
)
# F's own adaptive_max_pool, for torch's of the same name returns indices as well.
for _function in (*named(*ACTIVATIONS, *AVERAGES, *MAXIMA, *COPIES), *(getattr(F, name) for name in ADAPTIVE_MAXIMA)):
    rule(_function)(partial(monotone, _function))
for _function in named(*VIEWS):
    rule(_function)(partial(_view, _function))


def _monotone_from_zero(function: Any, parameter: str, position: int, box: Box, *rest: Any, **more: Any) -> Any:
    """For functions that rise everywhere only if one parameter is not negative."""
    value = rest[position] if len(rest) > position else more.get(parameter)
    if value is not None and value < 0:
        raise UnsupportedOperation(f"{function.__name__} with {parameter}={value} is not monotone: it has no rule")
    return monotone(function, box, *rest, **more)


for _name, _parameter, _position in (
    *(("leaky_relu", "negative_slope", 0), ("elu", "alpha", 0), ("celu", "alpha", 0)),
    *((f"avg_pool{n}d", "divisor_override", 5) for n in (2, 3)),
):
    for _function in named(_name):
        rule(_function)(partial(_monotone_from_zero, _function, _parameter, _position))
rule(*named("avg_pool1d"))(partial(monotone, F.avg_pool1d))


@rule(F.interpolate)
def interpolate(box: Box, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **more: Any) -> Any:
    if mode not in ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "area"):
        raise UnsupportedOperation(
            f"interpolation with mode={mode!r} has weights below 0: it has no rule; use 'bilinear'"
        )
    return monotone(F.interpolate, box, size, scale_factor, mode, **more)


def _join(function: Callable[..., Tensor], parts: Sequence[Any], *rest: Any, **more: Any) -> Box:
    lowers, uppers = zip(*map(ends, parts), strict=True)
    return Box.of(function(lowers, *rest, **more), function(uppers, *rest, **more))


for _function in named("cat", "concat", "concatenate", "stack"):
    rule(_function)(partial(_join, _function))


@rule(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)
def dropout(box: Box, p: float = 0.5, training: bool = True) -> Box:
    if training:
        raise UnsupportedOperation("dropout in training mode is random and has no bound: call network.eval() first")
    return box
