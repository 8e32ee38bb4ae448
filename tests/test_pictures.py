"""Sheets of images: every image where it belongs, grey or colour."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from certood.pictures import COLUMNS, GAP, SCALE, TITLE, write_sheet


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_is_where_it_belongs(channels: int, tmp_path: Path) -> None:
    images = torch.randint(256, (COLUMNS + 3, channels, 8, 8)).float() / 255
    write_sheet(tmp_path / "sheet.png", [("first", images), ("nothing", images[:0])])
    with Image.open(tmp_path / "sheet.png") as picture:
        sheet = np.asarray(picture)
    pitch = (8 + GAP) * SCALE
    assert sheet.shape == (TITLE + 2 * pitch, COLUMNS * pitch, 3)
    for index in (0, 5, COLUMNS + 2):
        top, left = TITLE + index // COLUMNS * pitch, index % COLUMNS * pitch
        shown = sheet[top : top + 8 * SCALE : SCALE, left : left + 8 * SCALE : SCALE]
        expected = (images[index] * 255).round().byte().permute(1, 2, 0).expand(8, 8, 3).numpy()
        assert np.array_equal(shown, expected)
