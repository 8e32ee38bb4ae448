"""Interval rules of arithmetic, and of functions that do not rise everywhere: softplus with its threshold, and valleys,
which fall down to x* and then rise:    l' = f(clamp(x*, l, u)),  u' = max(f(l), f(u)).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.bounds.interval import ends, monotone, named, refuse_boxes, rule
from certood.boxes import Box
from certood.errors import UnsupportedOperation


@rule(*named("add"))
def add(left: Any, other: Any, alpha: float = 1) -> Box:
    _only_default("add", "alpha", alpha, 1)
    (left_lower, left_upper), (right_lower, right_upper) = ends(left), ends(other)
    return Box.of(left_lower + right_lower, left_upper + right_upper)


@rule(*named("sub", "subtract"))
def sub(left: Any, other: Any, alpha: float = 1) -> Box:
    _only_default("sub", "alpha", alpha, 1)
    (left_lower, left_upper), (right_lower, right_upper) = ends(left), ends(other)
    return Box.of(left_lower - right_upper, left_upper - right_lower)


@rule(*named("neg"))
def neg(box: Box) -> Box:
    return Box.of(-box.upper, -box.lower)


@rule(*named("mul", "multiply"))
def mul(left: Any, other: Any) -> Box:
    refuse_boxes("multiplication", other if isinstance(left, Box) else left)
    (left_lower, left_upper), (lower, upper) = ends(left), ends(other)
    first, second = left_lower * lower, left_upper * upper  # in this order, which decides the result's layout in memory
    return Box.of(torch.minimum(first, second), torch.maximum(first, second))


@rule(*named("div", "divide", "true_divide"))
def div(box: Any, divisor: Any, rounding_mode: str | None = None) -> Box:
    refuse_boxes("division", divisor)
    _only_default("div", "rounding_mode", rounding_mode, None)
    if isinstance(divisor, int | float) and divisor == 0:
        raise UnsupportedOperation("division by zero")
    first, second = box.lower / divisor, box.upper / divisor
    return Box.of(torch.minimum(first, second), torch.maximum(first, second))


def _only_default(function: str, option: str, value: Any, default: Any) -> None:
    if value != default:
        raise UnsupportedOperation(f"{function} with {option}={value} has no rule")


def _extremum(function: Callable[..., Tensor], left: Any, right: Any) -> Box:
    (left_lower, left_upper), (right_lower, right_upper) = ends(left), ends(right)
    return Box.of(function(left_lower, right_lower), function(left_upper, right_upper))


rule(*named("maximum"))(partial(_extremum, torch.maximum))
rule(*named("minimum"))(partial(_extremum, torch.minimum))


@rule(F.softplus)
def softplus(box: Box, beta: float = 1, threshold: float = 20) -> Box:
    """log(1 + exp(beta z)) / beta, but z itself where beta z > threshold: there it falls, and rises again."""
    if beta <= 0:
        raise UnsupportedOperation(f"softplus with beta={beta} has no rule")
    lower, upper = F.softplus(box.lower, beta, threshold), F.softplus(box.upper, beta, threshold)
    edge = box.project(torch.full_like(box.lower, threshold / beta))
    across = (box.lower * beta <= threshold) & (box.upper * beta > threshold)
    top = torch.maximum(upper, F.softplus(edge, beta, math.inf))
    return Box.of(torch.where(across, torch.minimum(lower, edge), lower), torch.where(across, top, upper))


# ---- valley: l' = f(clamp(x*, l, u)), u' = max(f(l), f(u)) -----------------------------------------------------------


def _valley(function: Callable[..., Tensor], bottom: float, box: Box, *rest: Any, **more: Any) -> Box:
    lowest = box.project(torch.full_like(box.lower, bottom))
    upper = torch.maximum(function(box.lower, *rest, **more), function(box.upper, *rest, **more))
    return Box.of(function(lowest, *rest, **more), upper)


# Where each falls no further, to the precision of float64 (roots of the derivative, computed with 40 digits).
for _name, _bottom in (("silu", -1.278464542761074), ("mish", -1.192431214515495), ("hardswish", -1.5), ("abs", 0.0)):
    for _function in named(_name):
        rule(_function)(partial(_valley, _function, _bottom))
rule(*named("square"))(partial(_valley, torch.square, 0.0))


@rule(F.gelu)
def gelu(box: Box, approximate: str = "none") -> Box:
    bottom = -0.7517915246935645 if approximate == "none" else -0.7524614220710163
    return _valley(F.gelu, bottom, box, approximate=approximate)


@rule(*named("pow"))
def power(box: Any, exponent: Any) -> Box:
    if not (isinstance(box, Box) and isinstance(exponent, int) and exponent > 0):
        raise UnsupportedOperation("a power has a rule only for a Box to a whole, positive exponent")
    result: Box = _valley(torch.pow, 0.0, box, exponent) if exponent % 2 == 0 else monotone(torch.pow, box, exponent)
    return result
