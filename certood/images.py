"""Whatever a caller calls images, in the one form that a network takes: [N, C, S, S] in [0, 1].

Arrays of numpy and torch, uint8 or floating, channels first or last, one image or many; PIL images; image files.
Nothing is scaled, cropped, recoloured or guessed: what does not fit the network is an error that says what to do.

Numbers stay exact (float64, 8-bit levels as k/255) until a network or a box rounds them, so that a box around an image
holds what the caller means by it. Arrays are read in blocks: a memory map of a million images is never copied whole.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from certood.errors import ImageError

# Readers of PIL that foreign bytes may be handed to: EPS, for one, would start another program.
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Form(NamedTuple):
    """What a network takes."""

    channels: int
    size: int

    def __str__(self) -> str:
        colours = {1: "grey ", 3: "colour "}.get(self.channels, "")
        return f"{colours}images [N, {self.channels}, {self.size}, {self.size}]"


@final
@dataclass(frozen=True)
class Array:
    """One array of numpy or torch, and how its axes are read."""

    raw: Any
    layout: str  # some of N, C, H, W
    where: str  # for messages

    def __len__(self) -> int:
        return int(self.raw.shape[0]) if self.layout[0] == "N" else 1

    def block(self, start: int, stop: int) -> Tensor:
        """Exact images.  # [n, C, S, S] float64"""
        some = self.raw[start:stop] if self.layout[0] == "N" else self.raw[None]
        part: Tensor
        if isinstance(some, np.ndarray):
            part = torch.from_numpy(np.array(some, dtype=some.dtype.newbyteorder("="), order="C", copy=True))
        else:
            part = some.detach()
        if "C" not in self.layout:
            part = part[:, None]
        elif self.layout[-1] == "C":
            part = part.permute(0, 3, 1, 2)
        if part.dtype == torch.uint8:
            return part.double() / 255
        wrong = ~((part >= 0) & (part <= 1))
        if bool(wrong.any()):
            raise ImageError(
                f"{self.where}{int(wrong.sum())} numbers lie outside [0, 1], the first is {part[wrong][0].item():g}: "
                f"divide 8-bit images by 255, do not normalise, and mend NaN"
            )
        return part.double()


@final
@dataclass(frozen=True)
class Images:
    """Images that fit a network. `device` is where the caller's tensor lives, None if it was no tensor."""

    arrays: tuple[Array, ...]
    device: torch.device | None

    def __len__(self) -> int:
        return sum(map(len, self.arrays))

    def batches(self, size: int, device: torch.device) -> Iterator[Tensor]:
        """Exact images, up to `size` at a time.  # [n, C, S, S] float64"""
        if len(self.arrays) == 1:
            for start in range(0, len(self), size):
                yield self.arrays[0].block(start, start + size).to(device)
            return
        for start in range(0, len(self.arrays), size):  # of a list, whose members are single images
            yield torch.cat([array.block(0, 1).to(device) for array in self.arrays[start : start + size]])


def coerce(images: Any, form: Form) -> Images:
    """Check images of any kind against what the network takes."""
    if isinstance(images, Sequence) and not isinstance(images, (str, bytes)):
        arrays = tuple(_single(image, form, f"image {index}: ") for index, image in enumerate(images))
        return Images(arrays, next((image.device for image in images if isinstance(image, Tensor)), None))
    return Images((_array(images, form, ""),), images.device if isinstance(images, Tensor) else None)


def _single(image: Any, form: Form, where: str) -> Array:
    array = _array(image, form, where)
    if len(array) != 1:
        raise ImageError(f"{where}it is {len(array)} images; a list holds single images: concatenate arrays of many")
    return array


def _array(images: Any, form: Form, where: str) -> Array:
    if isinstance(images, (str, os.PathLike)):
        where = f"{images}: "
        images = _from_file(Path(images), form)
    elif _is_pil(images):
        images = _from_pil(images, form, where)
    elif not isinstance(images, Tensor) and hasattr(images, "__array__"):
        images = np.asarray(images)
    if isinstance(images, np.ndarray):
        fits = images.dtype == np.uint8 or (images.dtype.kind == "f" and images.dtype.itemsize <= 8)
    elif isinstance(images, Tensor):
        fits = images.dtype in (torch.uint8, *FLOATS) and images.layout == torch.strided and not images.is_meta
    else:
        kind = type(images).__name__
        raise ImageError(f"{where}a {kind} is no image: give arrays of numpy or torch, PIL images, or file names")
    if not fits:
        raise ImageError(f"{where}images are {images.dtype}: give uint8, 0 to 255, or float32 or float64 in [0, 1]")
    return Array(images, _layout(tuple(images.shape), form, where), where)


def _layout(shape: tuple[int, ...], form: Form, where: str) -> str:
    """The one way to read the axes; a shape that allows two is refused."""
    channels, size = form
    ways: dict[str, tuple[int, ...]] = {"CHW": (channels, size, size), "HWC": (size, size, channels)}
    if channels == 1:
        ways["HW"] = (size, size)
    ways = {f"N{way}" if batch else way: axes for way, axes in ways.items() for batch in (True, False)
            if len(shape) == len(axes) + batch and shape[batch:] == axes}  # fmt: skip
    if shape == (1, size, size):  # one image or a batch of one: the same numbers
        ways.pop("NHW", None)
    if len(ways) == 1:
        return next(iter(ways))
    if ways:
        raise ImageError(f"{where}images {list(shape)} can be read as {' or '.join(ways)}: there is no telling which")
    raise ImageError(f"{where}images have shape {list(shape)}, the network takes {form}{_remedy(shape, form)}")


def _remedy(shape: tuple[int, ...], form: Form) -> str:
    if not 2 <= len(shape) <= 4:
        return ", or channels last, or one image without N"
    if form.size not in shape:
        return f": bring them to {form.size}x{form.size} as the training images were"
    found, wanted = {1: ("colour", "grey"), 3: ("grey", "colour")}.get(form.channels, ("", ""))
    if wanted and len(set(shape[-3:]) - {form.size}) <= 1:
        return f": if they are {found}, convert them to {wanted} as the training images were"
    return ""


def _is_pil(image: Any) -> bool:
    return any(kind.__module__ == "PIL.Image" for kind in type(image).__mro__)


def _from_file(path: Path, form: Form) -> np.ndarray[Any, Any]:
    from PIL import Image

    try:
        if path.is_dir():
            raise ImageError(f"{path} is a folder: name the image files in it")
        if not path.is_file():
            raise ImageError(f"{path} is {'no regular file' if path.exists() else 'not there'}")
        with Image.open(path, formats=FORMATS) as image:
            return _from_pil(image, form, f"{path}: ")
    except ImageError:
        raise
    except Exception as error:  # each of PIL's readers fails in ways of its own on a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ImageError(f"{path} is no readable image ({reason}); {', '.join(FORMATS)} are read") from None


def _from_pil(image: Any, form: Form, where: str) -> np.ndarray[Any, Any]:  # [S, S] or [S, S, 3] uint8
    """What the header says is checked before a pixel is decoded, so that a bomb of an image costs nothing."""
    from PIL import ImageOps

    if image.size != (form.size, form.size):
        width, height = image.size
        raise ImageError(
            f"{where}the image is {width}x{height} pixels, the network takes {form.size}x{form.size}: scale or crop it "
            f"as the training images were"
        )
    wanted = {1: "L", 3: "RGB"}.get(form.channels)
    if wanted is None:
        raise ImageError(f"{where}the network takes {form.channels} channels, which an image file does not have")
    if image.mode != wanted:
        raise ImageError(
            f"{where}the image is of PIL's mode {image.mode}, the network takes {wanted}: convert it as the training "
            f"images were, for example with image.convert({wanted!r})"
        )
    if getattr(image, "is_animated", False):
        raise ImageError(f"{where}holds more than one picture: give one")
    if "exif" in image.info:  # a camera held sideways; training images are read in the same way
        image = ImageOps.exif_transpose(image)
    return np.asarray(image)
