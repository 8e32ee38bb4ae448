"""Where a search begins. On the out-distribution it matters more than how it goes on: most of a box may be flat.

Of all starts tried, `split` wakes most samples of GOOD models on MNIST, more than the paper's contrast start: it makes
a drawing of the image, as in-distribution digits are. benchmarks/attacks.py measures what each start is worth.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from certood.boxes import Box

NEAR = 0.01  # the paper starts this close on MNIST, because a point at random in the box is often in a flat region


def _clean(box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    return x


def _uniform(box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    return torch.lerp(box.lower, box.upper, _random(x, draw))


def _near(box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    return x + NEAR * (2 * _random(x, draw) - 1)


def _contrast(box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    """White where the box reaches white, as dark as it allows elsewhere (the paper's appendix on attacks)."""
    return torch.where(box.upper >= 1, box.upper, box.lower)


def _split(share: float, box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    """As bright as the box allows above `share` of the way from the darkest to the brightest pixel, dark below."""
    low, high = (end(x.flatten(1), 1).reshape(-1, *[1] * (x.ndim - 1)) for end in (torch.amin, torch.amax))
    return torch.where(x > torch.lerp(low, high, share), box.upper, box.lower)


def _decontrast(box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    """Every pixel towards the mean of the image, as far as the box allows."""
    mean = x.flatten(1).mean(1)
    return mean.reshape(-1, *[1] * (x.ndim - 1)).expand_as(x)


def _corner(box: Box, x: Tensor, draw: torch.Generator) -> Tensor:
    return torch.where(_random(x, draw) < 0.5, box.lower, box.upper)


def _random(x: Tensor, draw: torch.Generator) -> Tensor:
    """U[0, 1], the same on every device: drawn on the CPU."""
    return torch.rand(x.shape, generator=draw, dtype=x.dtype).to(x.device)


STARTS: dict[str, Callable[[Box, Tensor, torch.Generator], Tensor]] = {
    "clean": _clean,
    "near": _near,
    "uniform": _uniform,
    "contrast": _contrast,
    **{f"split-{number}0": partial(_split, number / 10) for number in range(1, 10)},
    "decontrast": _decontrast,
    "corner": _corner,
}
