"""The order of samples: permutations, the same wherever it is asked."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from certood.data.augment import Augmentation
from certood.data.order import BlockOrder, Blocks, Order, seed_for
from certood.data.stream import Batches, generator

sizes = st.integers(1, 3000)


class Numbered:
    """Images that tell their index."""

    blocks = None

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def images(self, indices: np.ndarray) -> np.ndarray:
        return np.broadcast_to((indices % 251).astype(np.uint8)[:, None, None, None], (len(indices), 1, 2, 2)).copy()

    def labels(self, indices: np.ndarray) -> np.ndarray:
        return indices


@given(sizes, st.integers(0, 5), st.integers(0, 3))
def test_every_pass_is_a_permutation(size: int, seed: int, number: int) -> None:
    indices = Order(size, seed, "in").indices(number * size, size)
    assert np.array_equal(np.sort(indices), np.arange(size))


@given(sizes, st.integers(0, 10_000), st.integers(1, 300))
def test_a_piece_is_a_piece_of_the_whole(size: int, start: int, count: int) -> None:
    order = Order(size, 1, "in")
    whole = order.indices(0, start + count)
    assert np.array_equal(order.indices(start, count), whole[start:])


def test_passes_seeds_and_names_differ() -> None:
    order = Order(1000, 0, "in")
    first = order.indices(0, 1000)
    for other in (
        order.indices(1000, 1000),
        Order(1000, 1, "in").indices(0, 1000),
        Order(1000, 0, "out").indices(0, 1000),
    ):
        assert (first == other).mean() < 0.02


def test_it_mixes() -> None:
    """Neighbours in a pass are no neighbours in the set, and every position sees the whole range."""
    indices = Order(60_000, 0, "in").indices(0, 60_000)
    assert abs(np.corrcoef(indices, np.arange(60_000))[0, 1]) < 0.02
    assert abs(np.corrcoef(indices[1:], indices[:-1])[0, 1]) < 0.02
    assert 14_000 < indices[:1000].std() < 20_000  # uniform: 17,320


def test_fifty_million_images_cost_nothing() -> None:
    indices = Order(50_000_000, 7, "out").indices(49_999_990 + 3 * 50_000_000, 20)
    assert indices.min() >= 0
    assert indices.max() < 50_000_000


def test_an_epoch_shows_every_image_once_and_the_last_batch_is_what_is_left() -> None:
    batches = Batches(Numbered(300), Numbered(1000), size=128, seed=0)
    assert batches.per_epoch == 3
    for epoch in (0, 1):
        labels = [batches[epoch * 3 + number].labels for number in range(3)]
        assert [len(each) for each in labels] == [128, 128, 44]
        assert sorted(torch.cat(labels).tolist()) == list(range(300))
    assert len(batches[2].out_images) == 128


def test_an_epoch_of_the_out_set_is_seen_once_before_it_repeats() -> None:
    batches = Batches(Numbered(300), Numbered(1024), size=128, seed=0)
    seen = np.concatenate([Order(1024, 0, "out").indices(step * 128, 128) for step in range(8)])
    assert sorted(seen) == list(range(1024))
    assert torch.equal(batches[3].out_images[:, 0, 0, 0], torch.from_numpy((seen[384:512] % 251).astype(np.uint8)))


def test_seeds_and_generators_are_named() -> None:
    assert seed_for(0, "in", 1) == seed_for(0, "in", 1)
    assert len({seed_for(s, n, p) for s in (0, 1) for n in ("in", "out") for p in (0, 1, 11)}) == 12
    assert seed_for(1, "in", 1) != seed_for(11, "in")
    first, second = (torch.rand(3, generator=generator(0, "x", 4)) for _ in range(2))
    assert torch.equal(first, second)


# ---- block by block --------------------------------------------------------------------------------------------------

block_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@given(block_sizes, st.integers(1, 8), st.integers(0, 3), st.integers(0, 3))
def test_every_pass_over_blocks_is_a_permutation(lengths: list[int], window: int, seed: int, number: int) -> None:
    starts = np.cumsum([0, *lengths])
    order = BlockOrder(Blocks(starts, window), seed, "out")
    indices = order.indices(number * starts[-1], int(starts[-1]))
    assert np.array_equal(np.sort(indices), np.arange(starts[-1]))


@given(block_sizes, st.integers(1, 8), st.integers(0, 2000), st.integers(1, 300))
def test_a_piece_over_blocks_is_a_piece_of_the_whole(lengths: list[int], window: int, start: int, count: int) -> None:
    order = BlockOrder(Blocks(np.cumsum([0, *lengths]), window), 1, "out")
    assert np.array_equal(order.indices(start, count), order.indices(0, start + count)[start:])


@given(block_sizes, st.integers(1, 8))
def test_a_window_holds_no_more_blocks_than_it_says(lengths: list[int], window: int) -> None:
    starts = np.cumsum([0, *lengths])
    indices = BlockOrder(Blocks(starts, window), 0, "out").indices(0, int(starts[-1]))
    blocks = np.searchsorted(starts, indices, side="right") - 1
    changes = list(dict.fromkeys(blocks.tolist()))
    last = {block: int(np.flatnonzero(blocks == block)[-1]) for block in changes}
    first = {block: int(np.flatnonzero(blocks == block)[0]) for block in changes}
    assert all(sum(first[b] <= at <= last[b] for b in changes) <= window for at in range(len(indices)))


def test_blocks_mix() -> None:
    starts = np.arange(0, 100_001, 1000)
    indices = BlockOrder(Blocks(starts, 20), 0, "out").indices(0, 100_000)
    assert abs(np.corrcoef(indices[1:], indices[:-1])[0, 1]) < 0.2
    assert len(set(indices[:128] // 1000)) >= 18
    assert (indices != BlockOrder(Blocks(starts, 20), 0, "out").indices(100_000, 100_000)).mean() > 0.99


class Drawn(Numbered):
    """Colour images."""

    def images(self, indices: np.ndarray) -> np.ndarray:
        return np.random.default_rng(indices).integers(0, 256, (len(indices), 3, 8, 8), np.uint8)


def test_who_reads_ahead_augments_ahead_and_the_images_are_the_same() -> None:
    """Also those of AutoAugment, which draws from the global generator."""
    batches = Batches(Drawn(40), Drawn(30), 16, 0, Augmentation(8, 2, flip=True, policy="svhn"))
    ahead = torch.utils.data.DataLoader(batches, batch_size=None, sampler=range(3), num_workers=1)
    for step, (_, images, _, out_images, _) in enumerate(ahead):
        torch.manual_seed(step)
        here = batches[step]
        assert images.dtype == torch.float32
        assert torch.equal(images, here.images)
        assert torch.equal(out_images, here.out_images)
    augment = Augmentation(8, 2, flip=True, policy="svhn")
    stored = Batches(Drawn(40), None, 16, 0)[2].images
    assert torch.equal(here.images, augment(stored, generator(0, "augment in", 2)))
