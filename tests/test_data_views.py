"""Views: every set ends in the form that was asked for, and the arithmetic is PIL's."""

import numpy as np
import pytest
from data_files import pictures
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from certood.data.views import VIEWS, View, adapt
from certood.errors import DataError

PLAIN = View()


@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    colour=st.booleans(),
    channels=st.sampled_from([1, 3]),
    size=st.integers(1, 40),
    margin=st.integers(0, 5),
    view=st.sampled_from([PLAIN, *VIEWS.values()]),
)
def test_every_image_gets_the_form_asked_for(
    height: int, width: int, colour: bool, channels: int, size: int, margin: int, view: View
) -> None:
    shape = (2, height, width, 3) if colour else (2, height, width)
    batch = np.random.default_rng(height * 100 + width).integers(0, 256, shape, np.uint8)
    if min(height, width) < 0.75 * size:
        with pytest.raises(DataError, match="too small"):
            adapt(batch, view, channels, size, margin)
        return
    adapted = adapt(batch, view, channels, size, margin)
    assert adapted.shape == (2, channels, size + margin, size + margin)
    assert adapted.dtype == np.uint8
    np.testing.assert_array_equal(adapt(list(batch), view, channels, size, margin), adapted)
    np.testing.assert_array_equal(adapt(batch[1:], view, channels, size, margin), adapted[1:])


def test_a_margin_is_what_the_centre_crop_takes_away() -> None:
    batch = pictures(3, colour=True, side=32)
    wide, narrow = adapt(batch, PLAIN, 1, 28, 4), adapt(batch, PLAIN, 1, 28, 0)
    np.testing.assert_array_equal(wide[:, :, 2:30, 2:30], narrow)


def test_grey_is_the_luma_of_pil() -> None:
    levels = np.arange(0, 256, 5, np.uint8)
    colours = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 52, 3)
    expected = np.asarray(Image.fromarray(colours[0]).convert("L"))
    found = np.concatenate([adapt(colours[:, top : top + 52], PLAIN, 1, 52, 0)[0, 0] for top in range(0, 2704, 52)])
    np.testing.assert_array_equal(found, expected)


def test_small_images_get_a_black_border_and_grey_three_channels() -> None:
    batch = pictures(2)
    adapted = adapt(batch, PLAIN, 3, 32, 0)
    for channel in range(3):
        np.testing.assert_array_equal(adapted[:, channel, 2:30, 2:30], batch)
    adapted[:, :, 2:30, 2:30] = 0
    assert not adapted.any()


@pytest.mark.parametrize(("side", "size", "margin"), [(64, 32, 0), (64, 28, 4), (37, 28, 0), (300, 64, 0)])
def test_large_images_are_scaled_down_first(side: int, size: int, margin: int) -> None:
    image = pictures(1, side=side)[0]
    goal = max(32, size + margin)
    scaled = np.asarray(Image.fromarray(image).resize((goal, goal), Image.Resampling.BILINEAR))
    cut = (goal - size - margin) // 2
    expected = scaled[cut : cut + size + margin, cut : cut + size + margin]
    np.testing.assert_array_equal(adapt(image[None], PLAIN, 1, size, margin)[0, 0], expected)


def test_slightly_large_images_are_cut_not_scaled() -> None:
    batch = pictures(1, side=36)
    np.testing.assert_array_equal(adapt(batch, PLAIN, 1, 28, 0)[0, 0], batch[0, 4:32, 4:32])


def test_omniglot_becomes_white_on_black() -> None:
    page = np.full((1, 105, 105), 255, np.uint8)
    page[:, 40:60, 20:90] = 0
    adapted = adapt(page, VIEWS["omniglot"], 1, 28, 0)[0, 0]
    assert adapted[13, 14] == 255
    assert adapted[0, 0] == 0
    scaled = np.asarray(Image.fromarray(page[0]).resize((28, 28), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(adapted, 255 - scaled)


def test_wrong_number_of_channels() -> None:
    with pytest.raises(DataError, match="images have 4 channels"):
        adapt(np.zeros((1, 8, 8, 4), np.uint8), PLAIN, 3, 8, 0)
