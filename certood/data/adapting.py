"""From the raw images of a source to those that a network takes: which of them, in which form, with which labels."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from certood.data.entries import Entry
from certood.data.formats import Indices, Source
from certood.data.order import Blocks, Order
from certood.data.views import Pixels, View, adapt
from certood.errors import CorruptBlock, CorruptRecord, DataError

DECODED_AT_ONCE = 1 << 30  # bytes: compressed sets up to this size are decoded when loaded, larger ones batch by batch
CHUNK = 1000  # images decoded together at loading
IN_A_BLOCK = 100  # corrupt images after which the next block is tried; a block that is damaged as a whole counts as one
IN_A_ROW = 1000  # such attempts after which a set is given up


class Adapted(NamedTuple):
    length: int
    images: Callable[[Indices], Pixels]
    rows: Indices | None  # of the source; None for all of them
    blocks: Blocks | None
    corrupt: tuple[int, ...]  # rows of the source that were found to be unreadable, and are not among the images


def adapted(
    source: Source, view: View, channels: int, size: int, margin: int, limit: int | None,
    without_corrupt: bool, at_once: bool = True,
) -> Adapted:  # fmt: skip
    """`without_corrupt`: what cannot be read is left out if all is read now; later, whoever asks for it is told."""
    if not source.length:
        raise DataError(f"{source.where}: holds no images")
    rows = chosen(source.length, limit)

    def images(indices: Indices) -> Pixels:
        try:
            return adapt(source.read(indices if rows is None else rows[indices]), view, channels, size, margin)
        except DataError as error:
            message = str(error)
            raise type(error)(message if source.where in message else f"{source.where}: {message}") from None

    length = source.length if rows is None else len(rows)
    shape = (channels, size + margin, size + margin)
    if not at_once or not source.slow or length * int(np.prod(shape)) > DECODED_AT_ONCE:
        # A set of the wrong form should fail when it is loaded, not in the middle of training.
        blocks = _blocks(source.blocks, rows)
        readable(images, np.arange(1), length, blocks) if without_corrupt else images(np.arange(1))
        return Adapted(length, images, rows, blocks, ())
    decoded, corrupt = np.empty((length, *shape), np.uint8), list[int]()
    for start in range(0, length, CHUNK):
        block = np.arange(start, min(start + CHUNK, length))
        try:
            decoded[block] = images(block)
        except CorruptRecord:
            if not without_corrupt:
                raise
            corrupt += _one_by_one(images, block, decoded)
    if corrupt:
        kept = np.delete(np.arange(length), corrupt)
        if not len(kept):
            raise DataError(f"{source.where}: none of its {length} images can be read")
        decoded, rows = decoded[kept], kept if rows is None else rows[kept]
    return Adapted(len(decoded), functools.partial(np.take, decoded, axis=0), rows, None, tuple(corrupt))


def _one_by_one(images: Callable[[Indices], Pixels], block: Indices, decoded: Pixels) -> list[int]:
    corrupt = []
    for index in block:
        try:
            decoded[index] = images(np.array([index]))[0]
        except CorruptRecord:
            corrupt.append(int(index))
    return corrupt


def readable(
    images: Callable[[Indices], npt.NDArray[Any]], indices: Indices, length: int, blocks: Blocks | None = None
) -> tuple[npt.NDArray[Any], tuple[int, ...]]:
    """Images, and which were corrupt: the next one that can be read takes the place of each."""
    try:
        return images(indices), ()
    except CorruptRecord:
        pass
    found, corrupt = [], list[int]()
    for index in map(int, indices):
        for tried in range(1, IN_A_ROW + 1):
            try:
                found.append(images(np.array([index])))
                break
            except CorruptRecord as error:
                corrupt.append(index)
                said = str(error)
                past = blocks is not None and (isinstance(error, CorruptBlock) or tried % IN_A_BLOCK == 0)
                index = _in_next_block(blocks, index) if blocks is not None and past else (index + 1) % length
        else:
            raise DataError(f"{IN_A_ROW} corrupt images one after the other, the last: {said}")
    return np.concatenate(found), tuple(corrupt)


def _in_next_block(blocks: Blocks, index: int) -> int:
    """At the same place of the next block: its first image would stand for all of a batch."""
    starts = blocks.starts
    block = int(np.searchsorted(starts, index, side="right")) - 1
    following = (block + 1) % (len(starts) - 1)
    return int(starts[following] + (index - starts[block]) % (starts[following + 1] - starts[following]))


def chosen(length: int, limit: int | None) -> Indices | None:
    """Which images a limit takes: a fixed random choice, in their order. The first so many would be one class of a set
    that is sorted by class, as every folder of images is."""
    if limit is None or limit >= length:
        return None
    return np.sort(Order(length, 0, "limit").indices(0, limit))


def _blocks(blocks: Blocks | None, rows: Indices | None) -> Blocks | None:
    if blocks is None or rows is None:
        return blocks
    starts = np.unique(np.searchsorted(rows, blocks.starts))  # without the blocks that nothing is left of
    return Blocks(starts, blocks.window)


def labels_of(source: Source, entry: Entry | None) -> tuple[Indices | None, int, tuple[str, ...]]:
    """The labels counted from 0 (or None), how many classes there are, and their names."""
    labels = source.labels
    if labels is None or (entry is not None and not entry.classes):
        return None, 0, ()
    classes = entry.classes if entry else len(source.class_names) or int(labels.max()) + 1
    if entry and labels.min() == 1 and labels.max() == classes:
        labels = labels - 1  # EMNIST's own files count the letters from 1
    if labels.min() < 0 or labels.max() >= classes:
        wrong = int(labels.min() if labels.min() < 0 else labels.max())
        raise DataError(f"{source.where}: label {wrong} where there are {classes} classes, 0 to {classes - 1}")
    names = source.class_names or (entry.class_names if entry else ())
    return labels, classes, names if len(names) == classes else tuple(map(str, range(classes)))
