"""Harder out-images for drawings on black, made of the images that are there. What lies near a digit is no photograph
but another shape on black; without such shapes a bound that is low on photographs can be high on clothes.

No image of a test set enters here: shapes are drawn at random, pieces are cut from the training digits.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

COARSE = (3, 4, 6, 9)  # pixels of the noise that becomes a mask: few large blobs, or many small ones
POINTS = 24  # of a stroke that distances are measured to: less than 2 pixels apart, however long it is
STROKES = 3  # at most, in one image


@final
@dataclass(frozen=True)
class Shapes:
    """Which shares of an out-batch are shown as something else: the first in blobs, the last as strokes and pieces."""

    blobs: float = 0.0
    strokes: float = 0.0
    pieces: float = 0.0

    def __call__(self, x_out: Tensor, x: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """The out-batch with some of its images replaced.  # [M, C, H, W]"""
        total = len(x_out)
        blobs, strokes, pieces = (math.floor(share * total) for share in (self.blobs, self.strokes, self.pieces))
        if not blobs + strokes + pieces:
            return x_out
        x_out, end = x_out.clone(), total - strokes - pieces
        if blobs:
            x_out[:blobs] = inside_blobs(x_out[:blobs], generator)
        if strokes:
            x_out[end : end + strokes] = drawn_strokes(x_out[:strokes], generator)
        if pieces:
            x_out[total - pieces :] = mixed_pieces(x, labels, pieces, generator)
        return x_out


def inside_blobs(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images seen through random soft holes in black, every second one stretched to the full range of brightness."""
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    x = torch.cat([x[::2], ((x - low) / (high - low + 1e-3))[1::2]])  # [M, C, H, W]
    coarse = [COARSE[number % len(COARSE)] for number in range(len(x))]
    masks = [mask for size in COARSE if (count := coarse.count(size)) for mask in _holes(x, count, size, generator)]
    return x * torch.stack(masks)


def _holes(x: Tensor, count: int, coarse: int, generator: torch.Generator) -> Tensor:
    """sigmoid(k (z - t)) of smooth noise z with unit deviation, threshold t and sharpness k drawn for each."""
    noise = torch.randn(count, 1, coarse, coarse, generator=generator, device=x.device)
    z = F.interpolate(noise, x.shape[2:], mode="bicubic", align_corners=False)
    z = z / z.std((1, 2, 3), keepdim=True)
    threshold, sharpness = torch.rand(2, count, 1, 1, 1, generator=generator, device=x.device)
    return torch.sigmoid((2 + 10 * sharpness) * (z - (1.5 * threshold - 0.2)))  # [count, 1, H, W]


def drawn_strokes(like: Tensor, generator: torch.Generator) -> Tensor:
    """One to three quadratic curves, as a pen of 1 to 2 pixels would draw them.  # [M, C, H, W]"""
    count, channels, height, width = like.shape
    device = like.device
    scale = torch.tensor([height, width], device=device) / 28
    ends = (4 + 20 * torch.rand(count, STROKES, 3, 2, generator=generator, device=device)) * scale
    t = torch.linspace(0, 1, POINTS, device=device)[:, None]
    first, bend, last = ends[:, :, None].unbind(3)  # [M, S, 1, 2]
    curve = (1 - t) ** 2 * first + 2 * t * (1 - t) * bend + t**2 * last  # [M, S, P, 2]
    drawn = torch.randint(1, STROKES + 1, (count, 1, 1, 1), generator=generator, device=device)
    hidden = torch.arange(STROKES, device=device).view(1, -1, 1, 1) >= drawn
    curve = curve.masked_fill(hidden, -1e3).flatten(1, 2)  # [M, S P, 2]
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    grid = torch.cartesian_prod(rows, columns).to(like.dtype)  # [H W, 2]
    distance = torch.cdist(grid.expand(count, -1, -1), curve).amin(2)  # [M, H W]
    pen = (1.7 + 1.2 * torch.rand(count, 1, generator=generator, device=device)) * scale.mean()
    ink = ((pen - distance) / (1.4 * scale.mean())).clamp(0, 1)
    return ink.reshape(count, 1, height, width).expand(-1, channels, -1, -1)


def mixed_pieces(x: Tensor, labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Halves of two classes side by side or on top of each other, two images in one, quarter turns, swapped quarters:
    strokes as in the in-images that are none of their classes (nearly always).  # [count, C, H, W]"""
    first, second = torch.randint(len(x), (2, count), generator=generator, device=x.device)
    one, other = x[first], x[second]
    height, width = x.shape[2] // 2, x.shape[3] // 2
    swapped = one.roll((height, width), (2, 3))
    turned = _turned(one, swapped)
    beside = torch.cat([one[..., :width], other[..., width:]], 3)
    below = torch.cat([one[:, :, :height], other[:, :, height:]], 2)
    kinds = torch.stack([beside, below, torch.maximum(one, other), turned, swapped])  # [5, count, C, H, W]
    kind = torch.randint(len(kinds), (count,), generator=generator, device=x.device)
    kind = torch.where((labels[first] == labels[second]) & (kind < 3), 3 + kind % 2, kind)  # or it would be one of them
    return kinds[kind, torch.arange(count, device=x.device)]


def _turned(x: Tensor, instead: Tensor) -> Tensor:
    """By a quarter; where that changes little, as with a ring, `instead`."""
    if x.shape[2] != x.shape[3]:
        return instead
    turned = x.transpose(2, 3).flip(2)
    common, either = torch.minimum(x, turned).sum((1, 2, 3)), torch.maximum(x, turned).sum((1, 2, 3))
    return torch.where((common > either / 2)[:, None, None, None], instead, turned)
