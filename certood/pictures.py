"""Pictures that a training run leaves: its first batch, and which out-images it guarantees (the paper's batches)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from certood.files import write

COLUMNS = 16  # images in a row
SCALE = 2  # screen pixels per image pixel
GAP = 1
TITLE = 18  # height of a line of text


def write_sheet(path: Path, parts: Sequence[tuple[str, Tensor]]) -> None:
    """One titled block of images below the other."""
    blocks = [_block(title, images) for title, images in parts if len(images)]
    sheet = Image.new("RGB", (max(b.width for b in blocks), sum(b.height for b in blocks)), "white")
    top = 0
    for block in blocks:
        sheet.paste(block, (0, top))
        top += block.height
    write(path, lambda beside: sheet.save(beside, format="PNG"))


def _block(title: str, images: Tensor) -> Image.Image:
    pixels = (images.detach().cpu().clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()  # [N, H, W, C]
    pixels = np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels
    samples, height, width, _ = pixels.shape
    rows = -(-samples // COLUMNS)
    canvas = np.full((rows * (height + GAP), COLUMNS * (width + GAP), 3), 255, dtype=np.uint8)
    for index, picture in enumerate(pixels):
        top, left = index // COLUMNS * (height + GAP), index % COLUMNS * (width + GAP)
        canvas[top : top + height, left : left + width] = picture
    grid = Image.fromarray(canvas).resize((canvas.shape[1] * SCALE, canvas.shape[0] * SCALE), Image.Resampling.NEAREST)
    block = Image.new("RGB", (grid.width, grid.height + TITLE), "white")
    ImageDraw.Draw(block).text((4, 3), title, fill="black")
    block.paste(grid, (0, TITLE))
    return block
