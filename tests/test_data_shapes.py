"""Harder out-images: in [0, 1], as many as asked for, the same for the same seed, and what they are said to be."""

import pytest
import torch
from torch import Tensor

from certood.data.shapes import Shapes, drawn_strokes, inside_blobs, mixed_pieces
from certood.data.stream import generator


def images(count: int, channels: int = 1, size: int = 28) -> Tensor:
    return torch.rand(count, channels, size, size, generator=generator(1, "images"))


def seeded() -> torch.Generator:
    return generator(0, "shapes")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [28, 32, 9])
def test_they_are_images_and_those_of_their_seed(channels: int, size: int) -> None:
    x_out, x = images(40, channels, size), images(24, channels, size)
    shapes = Shapes(blobs=0.4, strokes=0.2, pieces=0.25)
    first, again = (shapes(x_out, x, torch.arange(24) % 10, seeded()) for _ in range(2))
    assert first.shape == x_out.shape
    assert first.dtype == x_out.dtype
    assert ((first >= 0) & (first <= 1)).all()
    assert torch.equal(first, again)
    changed = (first != x_out).flatten(1).any(1)
    assert changed.tolist() == [True] * 16 + [False] * 6 + [True] * 18


def test_no_shares_no_change_and_nothing_is_drawn() -> None:
    x_out, state = images(8), seeded()
    before = state.get_state()
    assert Shapes()(x_out, x_out, torch.zeros(8, dtype=torch.long), state) is x_out
    assert torch.equal(state.get_state(), before)


def test_the_out_batch_itself_is_left_alone() -> None:
    x_out = images(10)
    kept = x_out.clone()
    Shapes(0.5, 0.2, 0.2)(x_out, images(4), torch.arange(4), seeded())
    assert torch.equal(x_out, kept)


def test_blobs_show_images_on_black() -> None:
    white = inside_blobs(torch.ones(200, 1, 28, 28), seeded())[:100]  # the first half is not stretched
    dark, bright = (white < 0.05).float().mean(), (white > 0.95).float().mean()
    assert 0.2 < dark < 0.8
    assert 0.1 < bright < 0.7
    assert (white.flatten(1).amax(1) > 0.5).float().mean() > 0.95  # hardly one shows nothing


def test_strokes_are_thin_and_bright() -> None:
    drawn = drawn_strokes(images(200), seeded())
    ink = drawn.mean((1, 2, 3))
    assert (drawn.amax((1, 2, 3)) > 0.99).all()
    assert (ink > 0.01).all()
    assert (ink < 0.4).all()
    assert 0.05 < ink.mean() < 0.25  # MNIST's digits: 0.13


def test_pieces_come_from_the_in_images_and_are_none_of_them() -> None:
    x, labels = images(12), torch.arange(12) % 3
    pieces = mixed_pieces(x, labels, 60, seeded())
    values = x.flatten().unique()
    assert torch.isin(pieces, values).all()
    assert not (pieces[:, None] == x[None]).flatten(2).all(2).any()


def test_halves_of_one_class_are_not_put_together() -> None:
    """With one class alone only quarter turns and swapped quarters are left, which hold all pixels of their image."""
    x = images(6)
    pieces = mixed_pieces(x, torch.zeros(6, dtype=torch.long), 40, seeded())
    sums = x.double().sum((1, 2, 3))
    assert torch.isclose(pieces.double().sum((1, 2, 3))[:, None], sums[None]).any(1).all()


def test_a_ring_is_not_turned() -> None:
    """Turned by a quarter it would be a ring still, and an out-image that is an in-image."""
    rows, columns = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")
    radius = ((rows - 13.5) ** 2 + (columns - 13.5) ** 2).sqrt()
    ring = ((radius > 6) & (radius < 9)).float().expand(8, 1, 28, 28)
    pieces = mixed_pieces(ring, torch.zeros(8, dtype=torch.long), 40, seeded())
    assert not (pieces == ring[0]).flatten(1).all(1).any()
