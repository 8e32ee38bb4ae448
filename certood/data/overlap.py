"""Images of an out-distribution that the in-distribution holds too, found by what they show, once, and left out after.

Two images count as the same where their perceptual hashes differ in at most `distance` of 64 bits: whether each of the
lowest 8x8 frequencies of the grey 32x32 image is above their median, rows and columns of means left out (Zauner 2010).
Of CIFAR-10's images at 90 % brightness, compressed again as JPEG at quality 75, 99.9 % are within 4 bits; of other
photographs one in 4,000 is within 8 bits of any of 10,000. Mirrored or cropped copies are missed.
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from certood.data.formats import Indices, Source
from certood.data.leaving_out import skip
from certood.data.order import Blocks
from certood.data.views import Pixels
from certood.errors import CorruptRecord, DataError
from certood.files import write

Hashes = npt.NDArray[np.uint64]
Read = Callable[[Indices], Pixels]
SIDE, FREQUENCIES, BANDS, CHUNK = 32, 8, 8, 1000
FARTHEST = BANDS - 1  # bits: two hashes that differ in fewer bits than there are bands agree in one band at least
FLATTEST = 4.0  # standard deviation, of 255, below which an image shows nothing and is like all others of its kind


def hashes(images: Pixels) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """[N, 1, 32, 32] to 64 bits each, and which images show something."""
    grey = images[:, 0].astype(np.float32)  # [N, 32, 32]
    wave = np.cos(np.pi * np.arange(FREQUENCIES + 1)[1:, None] * (2 * np.arange(SIDE) + 1) / (2 * SIDE))
    low = wave.astype(np.float32) @ grey @ wave.T.astype(np.float32)  # [N, 8, 8]
    bits = (low > np.median(low, axis=(1, 2), keepdims=True)).reshape(-1, 64)
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0], grey.std(axis=(1, 2)) >= FLATTEST


def alike(outside: Read, length: int, inside: Hashes, distance: int, done: Callable[[int], None]) -> Indices:
    """Which of the images outside are within `distance` bits of one inside; corrupt ones are like none."""
    if not 0 <= distance <= FARTHEST:
        raise DataError(f"a distance is 0 to {FARTHEST} of 64 bits, not {distance}")
    bands = [inside.view(np.uint8).reshape(-1, BANDS)[:, band] for band in range(BANDS)]
    orders = [np.argsort(band, kind="stable") for band in bands]
    found = []
    for first, own, shown in hashed(outside, length):
        near = np.zeros(len(own), bool)
        for band, (values, order) in enumerate(zip(bands, orders, strict=True)):
            mine, ordered = own.view(np.uint8).reshape(-1, BANDS)[:, band], values[order]
            low, high = np.searchsorted(ordered, mine, "left"), np.searchsorted(ordered, mine, "right")
            which = np.repeat(np.arange(len(own)), high - low)
            at = np.arange(len(which)) - np.repeat(np.cumsum(high - low) - (high - low), high - low) + low[which]
            near[which[np.bitwise_count(own[which] ^ inside[order[at]]) <= distance]] = True
        found.append(first + np.flatnonzero(near & shown))
        done(len(own))
    return np.concatenate([np.empty(0, np.int64), *found])


def hashed(read: Read, length: int) -> Iterator[tuple[int, Hashes, npt.NDArray[np.bool_]]]:
    for first in range(0, length, CHUNK):
        block = np.arange(first, min(first + CHUNK, length))
        try:
            yield first, *hashes(read(block))
        except CorruptRecord:
            for index in block:
                try:
                    yield int(index), *hashes(read(np.array([index])))
                except CorruptRecord:
                    yield int(index), np.zeros(1, np.uint64), np.zeros(1, bool)


# ---- what was found, beside the files it was found in ----------------------------------------------------------------


def file_of(path: Path, split: str) -> Path:
    return path.parent / f"{split}.overlap.npz"


class Note(NamedTuple):
    """What all searches so far have found."""

    digest: str  # of the files that were searched
    gone: Indices
    against: tuple[str, ...]  # a search each: its distance and the sets


def record(path: Path, split: str, note: Note) -> None:
    with io.BytesIO() as content:
        np.savez(content, gone=note.gone, digest=np.array(note.digest), against=np.array(note.against))
        data = content.getvalue()
    write(file_of(path, split), lambda beside: beside.write_bytes(data))


def recorded(path: Path, split: str) -> Note | None:
    target = file_of(path, split)
    if not target.is_file():
        return None
    try:
        with target.open("rb") as file, np.load(file, allow_pickle=False) as content:
            gone: Indices = content["gone"].astype(np.int64)
            return Note(str(content["digest"]), gone, tuple(map(str, np.atleast_1d(content["against"]))))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{target}: cannot be read ({error}); delete it and run certood data overlap again") from None


def left_out(path: Path, split: str, digest: str) -> Indices | None:
    """The images that were found, if it was these files that were searched."""
    note = recorded(path, split)
    if note is not None and note.digest != digest:
        raise DataError(
            f"{file_of(path, split)}: is of other files than those beside it; run certood data overlap again"
        )
    return None if note is None else note.gone


def without(source: Source, gone: Indices) -> Source:
    if not len(gone):
        return source
    encoded, blocks = source.encoded, source.blocks
    if blocks is not None:
        blocks = Blocks(np.unique(blocks.starts - np.searchsorted(gone, blocks.starts)), blocks.window)
    return Source(
        source.length - len(gone),
        lambda indices: source.read(skip(indices, gone)),
        f"{source.digest} without {len(gone)}: {hashlib.sha256(gone.tobytes()).hexdigest()}",
        source.where,
        None if source.labels is None else np.delete(source.labels, gone),
        source.class_names,
        None if encoded is None else lambda indices: encoded(skip(indices, gone)),
        source.slow,
        blocks,
    )
