"""What ours is timed against, each written as somebody would who has only the paper or only PyTorch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certood import boxes
from certood.bounds import Box, interval


def four_convolutions(network: nn.Sequential, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The paper's formulas as they stand: W+ and W- applied to both ends."""
    lower, upper = x - eps, x + eps
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            apply: Callable[..., Tensor] = F.linear
            more: dict[str, object] = {}
            if isinstance(layer, nn.Conv2d):
                apply, more = F.conv2d, {"stride": layer.stride, "padding": layer.padding}
            lower, upper = (
                apply(lower, plus, layer.bias, **more) + apply(upper, minus, None, **more),
                apply(upper, plus, layer.bias, **more) + apply(lower, minus, None, **more),
            )
        else:
            lower, upper = layer(lower), layer(upper)
    return lower, upper


def naive_gap(network: nn.Sequential, x: Tensor, eps: float) -> Tensor:
    """max over k, l with the last layer elided (eq. 5), all K^2 differences of its rows at once.  # [N]"""
    last = network[-1]
    assert isinstance(last, nn.Linear)
    lower, upper = four_convolutions(network[:-1], x, eps)
    rows = last.weight[:, None] - last.weight  # [K, K, d]
    offsets = last.bias[:, None] - last.bias
    gaps = torch.einsum("nd,kld->nkl", upper, rows.clamp(min=0)) + torch.einsum("nd,kld->nkl", lower, rows.clamp(max=0))
    return (gaps + offsets).amax((1, 2))


def naive_step(network: nn.Sequential, optimiser: torch.optim.Optimizer, passes: int) -> Callable[..., None]:
    """GOOD_100's step; with three passes the clean answers on the out-batch are computed as well, as the authors do."""

    def step(x: Tensor, labels: Tensor, x_out: Tensor, kappa: float, eps: float) -> None:
        optimiser.zero_grad()
        loss = F.cross_entropy(network(x), labels)
        if passes == 3:
            network(x_out)
        loss = loss + kappa * torch.log1p(naive_gap(network, x_out, eps).square() / 2).mean()
        loss.backward()
        optimiser.step()

    return step


@contextmanager
def one_function_at_a_time() -> Iterator[None]:
    """The affine rule as it stood before `certood.bounds.affine`: torch differentiates every operation of its own."""

    def linear(box: Box, weight: Tensor, bias: Tensor | None = None) -> Box:
        out = interval._affine(F.linear, box, weight, bias)
        features = Box.of(box.lower.clone().to(weight.dtype), box.upper.clone().to(weight.dtype))
        return Box.of(out.lower, out.upper, source=boxes.Affine(features, weight, bias))

    former: dict[Any, Any] = {F.linear: linear, F.conv2d: partial(interval._affine, F.conv2d)}
    kept = {function: boxes.RULES[function] for function in former}
    boxes.RULES.update({function: boxes.Rule(rule, None) for function, rule in former.items()})
    try:
        yield
    finally:
        boxes.RULES.update(kept)
