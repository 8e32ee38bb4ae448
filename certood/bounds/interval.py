"""Interval bound propagation (Gowal et al. 2018): one rule per torch function, so that any network runs on a `Box`.

Every rule keeps one promise:  z in box  =>  function(z) in rule(box),  in exact arithmetic. Three kinds cover nearly
everything:

    affine      c' = f(c),  r' = |f|(r)         centre and radius: two convolutions a layer, not four
    monotone    l' = f(l),  u' = f(u)           also whatever only moves, copies or averages coordinates
    valley      l' = f(clamp(x*, l, u)),  u' = max(f(l), f(u))      falls down to x*, then rises: GELU, SiLU, |x|

A rule takes the arguments of its function, except `inplace`, which `Box.__torch_function__` deals with.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.boxes import RULES, Affine, Box, Rule
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


def _named(*names: str) -> list[Any]:
    """All functions of these names: networks call torch, torch.Tensor and torch.nn.functional alike."""
    found = (getattr(home, name, None) for name in names for home in (torch, Tensor, F))
    return [function for function in found if callable(function)]


def _refuse_boxes(function: str, *values: Any) -> None:
    if any(isinstance(value, Box) for value in values):
        raise UnsupportedOperation(f"{function}: only one operand may depend on the input, the others must be constant")


def _ends(value: Any) -> tuple[Any, Any]:
    return (value.lower, value.upper) if isinstance(value, Box) else (value, value)


# ---- affine: c' = f(c), r' = |f|(r) ----------------------------------------------------------------------------------


def _affine(
    function: Callable[..., Tensor], box: Box, weight: Tensor, bias: Any = None, *rest: Any, **more: Any
) -> Box:
    _refuse_boxes(function.__name__, weight, bias)
    centre = function(box.centre, weight, bias, *rest, **more)
    radius = function(box.radius, weight.abs(), None, *rest, **more)
    return Box.of(centre - radius, centre + radius)


for _function in (F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    rule(_function)(partial(_affine, _function))


@rule(F.linear)
def linear(box: Box, weight: Tensor, bias: Tensor | None = None) -> Box:
    out = _affine(F.linear, box, weight, bias)
    features = Box.of(box.lower.clone(), box.upper.clone())  # the network may go on to change its own in place
    return Box.of(out.lower, out.upper, source=Affine(features, weight, bias))


@rule(*_named("matmul", "mm", "bmm"))
def matmul(left: Any, right: Any) -> Box:
    if isinstance(left, Box):
        _refuse_boxes("matmul", right)
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
    if training or running_mean is None or running_var is None:
        raise UnsupportedOperation(
            "batch norm in training mode has no bound, its statistics depend on the batch: call network.eval() first"
        )
    centre = F.batch_norm(box.centre, running_mean, running_var, weight, bias, False, momentum, eps)
    slope = torch.rsqrt(running_var + eps) * (1.0 if weight is None else weight.abs())  # [C]
    radius = box.radius * slope.reshape(-1, *[1] * (box.ndim - 2))
    return Box.of(centre - radius, centre + radius)


# ---- monotone: l' = f(l), u' = f(u) ----------------------------------------------------------------------------------


def _monotone(function: Callable[..., Any], box: Box, *rest: Any, aliased: bool = False, **more: Any) -> Any:
    _refuse_boxes(getattr(function, "__name__", "function"), *rest, *more.values())
    lower, upper = function(box.lower, *rest, **more), function(box.upper, *rest, **more)
    if isinstance(lower, Tensor):
        return Box.of(lower, upper, aliased=aliased)
    return tuple(Box.of(*pair, aliased=aliased) for pair in zip(lower, upper, strict=True))


def _view(function: Callable[..., Any], box: Box, *rest: Any, **more: Any) -> Any:
    box.alias()
    return _monotone(function, box, *rest, aliased=True, **more)


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
for _function in (*_named(*ACTIVATIONS, *AVERAGES, *MAXIMA, *COPIES), *(getattr(F, name) for name in ADAPTIVE_MAXIMA)):
    rule(_function)(partial(_monotone, _function))
for _function in _named(*VIEWS):
    rule(_function)(partial(_view, _function))


def _monotone_from_zero(function: Any, parameter: str, position: int, box: Box, *rest: Any, **more: Any) -> Any:
    """For functions that rise everywhere only if one parameter is not negative."""
    value = rest[position] if len(rest) > position else more.get(parameter)
    if value is not None and value < 0:
        raise UnsupportedOperation(f"{function.__name__} with {parameter}={value} is not monotone: it has no rule")
    return _monotone(function, box, *rest, **more)


for _name, _parameter, _position in (
    *(("leaky_relu", "negative_slope", 0), ("elu", "alpha", 0), ("celu", "alpha", 0), ("softplus", "beta", 0)),
    *((f"avg_pool{n}d", "divisor_override", 5) for n in (2, 3)),
):
    for _function in _named(_name):
        rule(_function)(partial(_monotone_from_zero, _function, _parameter, _position))
rule(*_named("avg_pool1d"))(partial(_monotone, F.avg_pool1d))


@rule(F.interpolate)
def interpolate(box: Box, *rest: Any, mode: str = "nearest", **more: Any) -> Box:
    if mode == "bicubic":
        raise UnsupportedOperation("bicubic interpolation has negative weights: it has no rule; use mode='bilinear'")
    result: Box = _monotone(partial(F.interpolate, mode=mode), box, *rest, **more)
    return result


def _join(function: Callable[..., Tensor], parts: Sequence[Any], dim: int = 0) -> Box:
    lowers, uppers = zip(*map(_ends, parts), strict=True)
    return Box.of(function(lowers, dim), function(uppers, dim))


for _function in _named("cat", "concat", "concatenate", "stack"):
    rule(_function)(partial(_join, _function))


@rule(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)
def dropout(box: Box, p: float = 0.5, training: bool = True) -> Box:
    if training:
        raise UnsupportedOperation("dropout in training mode is random and has no bound: call network.eval() first")
    return box


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@rule(*_named("add"))
def add(left: Any, right: Any, alpha: float = 1) -> Box:
    _only_default("add", "alpha", alpha, 1)
    (left_lower, left_upper), (right_lower, right_upper) = _ends(left), _ends(right)
    return Box.of(left_lower + right_lower, left_upper + right_upper)


@rule(*_named("sub", "subtract"))
def sub(left: Any, right: Any, alpha: float = 1) -> Box:
    _only_default("sub", "alpha", alpha, 1)
    (left_lower, left_upper), (right_lower, right_upper) = _ends(left), _ends(right)
    return Box.of(left_lower - right_upper, left_upper - right_lower)


@rule(*_named("neg"))
def neg(box: Box) -> Box:
    return Box.of(-box.upper, -box.lower)


@rule(*_named("mul", "multiply"))
def mul(left: Any, right: Any) -> Box:
    box, factor = (left, right) if isinstance(left, Box) else (right, left)
    _refuse_boxes("multiplication", factor)
    first, second = box.lower * factor, box.upper * factor
    return Box.of(torch.minimum(first, second), torch.maximum(first, second))


@rule(*_named("div", "divide", "true_divide"))
def div(box: Any, divisor: Any, rounding_mode: str | None = None) -> Box:
    _refuse_boxes("division", divisor)
    _only_default("div", "rounding_mode", rounding_mode, None)
    if isinstance(divisor, int | float) and divisor == 0:
        raise UnsupportedOperation("division by zero")
    first, second = box.lower / divisor, box.upper / divisor
    return Box.of(torch.minimum(first, second), torch.maximum(first, second))


def _only_default(function: str, option: str, value: Any, default: Any) -> None:
    if value != default:
        raise UnsupportedOperation(f"{function} with {option}={value} has no rule")


def _extremum(function: Callable[..., Tensor], left: Any, right: Any) -> Box:
    (left_lower, left_upper), (right_lower, right_upper) = _ends(left), _ends(right)
    return Box.of(function(left_lower, right_lower), function(left_upper, right_upper))


rule(*_named("maximum"))(partial(_extremum, torch.maximum))
rule(*_named("minimum"))(partial(_extremum, torch.minimum))


# ---- valley: l' = f(clamp(x*, l, u)), u' = max(f(l), f(u)) -----------------------------------------------------------


def _valley(function: Callable[..., Tensor], bottom: float, box: Box, *rest: Any, **more: Any) -> Box:
    lowest = box.project(torch.full_like(box.lower, bottom))
    upper = torch.maximum(function(box.lower, *rest, **more), function(box.upper, *rest, **more))
    return Box.of(function(lowest, *rest, **more), upper)


# Where each falls no further, to the precision of float64 (roots of the derivative, computed with 40 digits).
for _name, _bottom in (("silu", -1.278464542761074), ("mish", -1.192431214515495), ("hardswish", -1.5), ("abs", 0.0)):
    for _function in _named(_name):
        rule(_function)(partial(_valley, _function, _bottom))
rule(*_named("square"))(partial(_valley, torch.square, 0.0))


@rule(F.gelu)
def gelu(box: Box, approximate: str = "none") -> Box:
    bottom = -0.7517915246935645 if approximate == "none" else -0.7524614220710163
    return _valley(F.gelu, bottom, box, approximate=approximate)


@rule(*_named("pow"))
def power(box: Any, exponent: Any) -> Box:
    if not (isinstance(box, Box) and isinstance(exponent, int) and exponent > 0):
        raise UnsupportedOperation("a power has a rule only for a Box to a whole, positive exponent")
    result: Box = _valley(torch.pow, 0.0, box, exponent) if exponent % 2 == 0 else _monotone(torch.pow, box, exponent)
    return result
