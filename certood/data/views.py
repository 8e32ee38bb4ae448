"""Views: how the images of one set are brought into the form a network takes. Stated once, here.

What a set alone needs stands in `VIEWS`. Then the same rules hold for all, in this order:
1. an image whose shorter side exceeds `size + 8` is scaled down (never up) until that side is 32, or `size + margin`
   if that is more: photographs keep the scale of the paper's sets, and a 28x28 network sees their centre;
2. colour becomes grey by ITU-R 601 luma (what PIL calls "L"), grey becomes three equal channels;
3. what is larger than `size + margin` loses its border, what is smaller gets a black one, both centred.
The margin is what a random crop in training may take away (32 -> 28 for MNIST's out set); evaluation has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from certood.errors import DataError

Pixels = npt.NDArray[np.uint8]


@final
@dataclass(frozen=True)
class View:
    """What one set needs before the general rules."""

    transpose: bool = False
    invert: bool = False
    scale_to: int = 32  # pixels on the shorter side after scaling down
    scale_above: int | None = None  # scale only above this; None: size + 8


SMALLEST = 0.75  # share of the network's size below which an image is refused; 28x28 fits 32x32

VIEWS: dict[str, View] = {
    # EMNIST's files hold the images transposed, and so does the hub's copy; upright letters are what MNIST looks like.
    "emnist_letters": View(transpose=True),
    # 105x105, black strokes on white (reproduction facts: resized to 28, inverted).
    "omniglot": View(invert=True, scale_to=28, scale_above=28),
    # lsun_classroom, imagenet_minus and tiny_imagenet as published are large: rule 1 brings their shorter side to 32.
}


def adapt(images: Pixels | Sequence[Pixels], view: View, channels: int, size: int, margin: int) -> Pixels:
    """Raw images, [n, H, W] or [n, H, W, C] or a sequence of [H, W(, C)] of any sizes -> uint8 [n, channels, S, S]
    with S = size + margin."""
    side = size + margin
    if isinstance(images, np.ndarray):
        return _adapt_equal(images, view, channels, size, side)
    adapted = np.empty((len(images), channels, side, side), np.uint8)
    members: dict[tuple[int, ...], list[int]] = {}
    for position, image in enumerate(images):
        members.setdefault(image.shape, []).append(position)
    for positions in members.values():
        batch = np.stack([images[position] for position in positions])
        adapted[positions] = _adapt_equal(batch, view, channels, size, side)
    return adapted


def _adapt_equal(batch: Pixels, view: View, channels: int, size: int, side: int) -> Pixels:
    if view.transpose:
        batch = batch.swapaxes(1, 2)
    shorter = min(batch.shape[1:3])
    if shorter < SMALLEST * size:  # a frame that wide would give the images away
        raise DataError(f"images of {batch.shape[1]}x{batch.shape[2]} are too small for a network of {size}x{size}")
    scale_to = max(view.scale_to, side)
    if shorter > (size + 8 if view.scale_above is None else view.scale_above) and shorter > scale_to:
        batch = _scale(batch, scale_to / shorter)
    batch = _recolour(batch, channels)  # [n, channels, H, W]
    if view.invert:
        batch = 255 - batch
    return _centre(batch, side)


def _scale(batch: Pixels, factor: float) -> Pixels:
    from PIL import Image

    # Bilinear with PIL's anti-aliasing: what torchvision's Resize does to a PIL image, hence what the authors saw.
    height, width = (max(1, round(length * factor)) for length in batch.shape[1:3])
    bilinear = Image.Resampling.BILINEAR
    squeezed = batch[..., 0] if batch.shape[3:] == (1,) else batch
    return np.stack(
        [np.asarray(Image.fromarray(np.ascontiguousarray(x)).resize((width, height), bilinear)) for x in squeezed]
    )


def _recolour(batch: Pixels, channels: int) -> Pixels:
    if batch.ndim == 3:
        batch = batch[..., None]
    found = batch.shape[3]
    if found not in (1, 3):
        raise DataError(f"images have {found} channels; certood reads grey (1) and RGB (3): convert them first")
    if found == 3 and channels == 1:
        # PIL's integers for 0.299 R + 0.587 G + 0.114 B (ITU-R 601-2), so that files and arrays agree to the last bit.
        red, green, blue = (batch[..., channel].astype(np.uint32) for channel in range(3))
        batch = ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).astype(np.uint8)[..., None]
    planes = batch.transpose(0, 3, 1, 2)
    return np.repeat(planes, 3, axis=1) if found == 1 and channels == 3 else planes


def _centre(batch: Pixels, side: int) -> Pixels:
    height, width = batch.shape[2:]
    top, left = max(0, (height - side) // 2), max(0, (width - side) // 2)
    batch = batch[:, :, top : top + side, left : left + side]
    height, width = batch.shape[2:]
    if (height, width) == (side, side):
        return np.ascontiguousarray(batch)
    framed = np.zeros((*batch.shape[:2], side, side), np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    framed[:, :, top : top + height, left : left + width] = batch
    return framed
