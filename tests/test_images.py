"""Whatever is called images comes out as the same numbers, or as an error that names what to do."""

import io
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from certood.errors import ImageError
from certood.images import Form, coerce

GREY, COLOUR = Form(1, 8), Form(3, 8)


def exact(images: Any, form: Form = COLOUR, batch: int = 2) -> torch.Tensor:
    blocks = list(coerce(images, form).batches(batch, torch.device("cpu")))
    assert all(len(block) <= batch for block in blocks)
    return torch.cat(blocks)


def colour(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), np.uint8)


def test_every_way_to_give_an_image_is_the_same(tmp_path: Path) -> None:
    pixels = colour()
    wanted = torch.from_numpy(pixels).double() / 255
    last = pixels.transpose(0, 2, 3, 1)
    pictures = [Image.fromarray(np.ascontiguousarray(image)) for image in last]
    paths = [tmp_path / f"{index}.png" for index in range(len(pictures))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    frozen = pixels.copy()
    frozen.flags.writeable = False
    for images in (
        *(pixels, last, pixels.astype(np.float64) / 255, torch.from_numpy(pixels), torch.from_numpy(last.copy())),
        *(list(pixels), tuple(last), pictures, paths, [str(path) for path in paths], frozen, pixels[::-1][::-1]),
        [pixels[0], last[1], pictures[2], paths[3], torch.from_numpy(pixels[4]) / 255.0],
        (pixels / 255).astype(">f8"),
    ):
        assert torch.allclose(exact(images), wanted, atol=3e-8, rtol=0)
    assert torch.equal(exact(pictures[1]), wanted[1:2])
    assert torch.equal(exact(paths[1]), wanted[1:2])
    assert torch.equal(exact(pixels[1]), wanted[1:2])


def test_grey_images_may_leave_out_their_channel(tmp_path: Path) -> None:
    pixels = colour()[:, 0]
    wanted = torch.from_numpy(pixels[:, None]).double() / 255
    for images in (pixels, pixels[:, None], pixels[..., None], list(pixels)):
        assert torch.equal(exact(images, GREY), wanted)
    assert torch.equal(exact(pixels[0], GREY), wanted[:1])
    assert torch.equal(exact(pixels[:1], GREY), wanted[:1])
    assert torch.equal(exact(np.repeat(pixels[:1], 8, 0), GREY), wanted[:1].expand(8, 1, 8, 8))
    assert len(coerce([], GREY)) == len(coerce(np.empty((0, 1, 8, 8), np.uint8), GREY)) == 0


def test_eight_bit_levels_are_what_the_network_was_trained_on() -> None:
    levels = np.arange(256, dtype=np.uint8).repeat(64)[: 256 * 64].reshape(-1, 1, 8, 8)
    assert torch.equal(exact(levels, GREY).float(), torch.from_numpy(levels).float() / 255)


@pytest.mark.parametrize(
    ("images", "form", "told"),
    [
        (np.zeros((2, 3, 8, 8), np.int64), COLOUR, "int64: give uint8"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.bool), COLOUR, "bool: give uint8"),
        (np.zeros((2, 3, 8, 8), object), COLOUR, "object"),
        (np.zeros((2, 3, 9, 9), np.uint8), COLOUR, "shape [2, 3, 9, 9], the network takes colour images [N, 3, 8, 8]"),
        (np.zeros((2, 3, 9, 9), np.uint8), COLOUR, "bring them to 8x8"),
        (np.zeros((2, 1, 8, 8), np.uint8), COLOUR, "grey, convert them to colour"),
        (np.zeros((2, 8, 8, 3), np.uint8), GREY, "colour, convert them to grey"),
        (np.zeros((8, 8), np.uint8), COLOUR, "grey, convert them to colour"),
        (np.zeros((2, 2, 3, 8, 8), np.uint8), COLOUR, "one image without N"),
        (np.zeros(192, np.uint8), COLOUR, "shape [192]"),
        (np.zeros((2, 4, 4, 4), np.uint8), Form(4, 4), "NCHW or NHWC"),
        (np.full((1, 3, 8, 8), 1.5), COLOUR, "192 numbers lie outside [0, 1], the first is 1.5"),
        (np.full((1, 3, 8, 8), np.nan), COLOUR, "the first is nan"),
        (-torch.eye(8).expand(1, 1, 8, 8), GREY, "8 numbers lie outside"),
        (torch.zeros(1, 1, 8, 8).to_sparse(), GREY, "give uint8"),
        (torch.zeros(1, 1, 8, 8, device="meta"), GREY, "give uint8"),
        ([np.zeros((2, 1, 8, 8), np.uint8)], GREY, "image 0: it is 2 images"),
        ([np.zeros((1, 8, 8), np.uint8), 7], GREY, "image 1: a int is no image"),
        (None, GREY, "NoneType is no image"),
        (b"\x89PNG", GREY, "bytes is no image"),
        (Image.new("L", (8, 8)), COLOUR, "mode L, the network takes RGB"),
        (Image.new("RGBA", (8, 8)), COLOUR, "mode RGBA, the network takes RGB"),
        (Image.new("RGB", (8, 9)), COLOUR, "8x9 pixels, the network takes 8x8"),
        (Image.new("L", (8, 8)), Form(2, 8), "2 channels, which an image file does not have"),
    ],
)
def test_what_does_not_fit_says_what_to_do(images: Any, form: Form, told: str) -> None:
    with pytest.raises(ImageError, match=re.escape(told)):
        exact(images, form)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that claims to be enormous."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(10**5))), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_files_that_are_no_images_of_ours(tmp_path: Path) -> None:
    def saved(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    good = io.BytesIO()
    Image.new("L", (8, 8), 7).save(good, "PNG")
    still = io.BytesIO()
    Image.new("L", (8, 8), 7).save(still, "TIFF", save_all=True, append_images=[Image.new("L", (8, 8))])
    for path, told in (
        (tmp_path / "nowhere.png", "is not there"),
        (tmp_path, "is a folder"),
        (tmp_path / ("a" * 5000), "File name too long"),
        (Path("/dev/zero"), "no regular file"),
        (saved("empty.png", b""), "no readable image"),
        (saved("half.png", good.getvalue()[:50]), "no readable image"),
        (saved("text.png", b"hello"), "no readable image"),
        (saved("program.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"), "no readable image"),
        (saved("bomb.png", bomb(60_000, 60_000)), "no readable image|60000x60000"),
        (saved("large.png", bomb(10_000, 10_000)), "10000x10000|bomb"),
        (saved("many.tiff", still.getvalue()), "more than one picture"),
    ):
        with pytest.raises(ImageError, match=told):
            exact(path, GREY)
    assert float(exact(saved("good.png", good.getvalue()), GREY)[0, 0, 0, 0]) == 7 / 255


@given(st.lists(st.integers(0, 5), min_size=0, max_size=5), st.sampled_from([np.uint8, np.float32, np.float64]))
def test_any_shape_is_read_one_way_or_refused(shape: list[int], kind: Any) -> None:
    form = Form(3, 4)
    try:
        images = coerce(np.zeros([{5: 3}.get(length, length) for length in shape], kind), form)
    except ImageError:
        return
    assert all(block.shape[1:] == (3, 4, 4) for block in images.batches(2, torch.device("cpu")))
