"""The order of samples: a function of (seed, pass, position) and nothing else.

No list of indices is kept, so fifty million images cost no memory; any step can be asked for first, so a resumed run
sees what an uninterrupted one would have seen; and it does not matter how many processes share the asking.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6  # of the Feistel network; four make a pseudo-random permutation (Luby and Rackoff 1988)


def seed_for(seed: int, name: str, *position: int) -> int:
    """A seed of its own for every use of randomness, so that none disturbs another."""
    text = ":".join([str(seed), name, *map(str, position)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@final
@dataclass(frozen=True)
class Order:
    """A fresh permutation of 0..size-1 for every pass over the data.

    A Feistel network permutes the next larger power of four; an index that falls outside is permuted again until it
    falls inside ("cycle walking", Black and Rogaway 2002), on average less than four times.
    """

    size: int
    seed: int
    name: str

    def indices(self, start: int, count: int) -> NDArray[np.int64]:
        """The samples at positions start .. start + count - 1, counted on over all passes."""
        positions = np.arange(start, start + count, dtype=np.int64)
        passes = positions // self.size
        result = np.empty(count, dtype=np.int64)
        for number in np.unique(passes):
            here = passes == number
            result[here] = self.permuted(positions[here] % self.size, int(number))
        return result

    def permuted(self, values: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """Where pass `number` takes these values, each of 0..size-1."""
        half = max(1, ((self.size - 1).bit_length() + 1) // 2)  # bits of each half
        mask = np.uint64((1 << half) - 1)
        keys = np.random.Generator(np.random.Philox(seed_for(self.seed, self.name, number))).integers(
            0, 2**63, size=ROUNDS, dtype=np.uint64
        )
        values = values.astype(np.uint64)
        outside = np.ones(len(values), dtype=bool)
        while outside.any():
            left, right = values[outside] >> np.uint64(half), values[outside] & mask
            for key in keys:
                left, right = right, left ^ (_mixed(right + key) & mask)
            values[outside] = (left << np.uint64(half)) | right
            outside = values >= self.size
        return values.astype(np.int64)


class Blocks(NamedTuple):
    """A set that is read block by block: row groups of parquet files, of which `window` are held at once."""

    starts: NDArray[np.int64]  # the first sample of each block, then the number of all samples
    window: int


@final
@dataclass(frozen=True)
class BlockOrder:
    """A fresh permutation for every pass that needs `window` blocks at a time: the blocks are shuffled, then the
    samples of as many blocks as are held. A function of (seed, pass, position) as `Order` is.
    """

    blocks: Blocks
    seed: int
    name: str

    def indices(self, start: int, count: int) -> NDArray[np.int64]:
        size = int(self.blocks.starts[-1])
        positions = np.arange(start, start + count, dtype=np.int64)
        result = np.empty(count, dtype=np.int64)
        for number in np.unique(positions // size):
            here = positions // size == number
            result[here] = self._of_pass(positions[here] % size, int(number))
        return result

    def _of_pass(self, offsets: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        starts, window = self.blocks
        blocks = _blocks_of_pass(len(starts) - 1, self.seed, self.name, number)
        sizes = np.diff(starts)[blocks]
        ends = np.cumsum(sizes)
        last = ends[np.minimum(np.arange(window, len(ends) + window, window), len(ends)) - 1]  # of each window
        windows = np.searchsorted(last, offsets, side="right")
        result = np.empty(len(offsets), dtype=np.int64)
        for at in np.unique(windows):
            here, first = windows == at, last[at - 1] if at else 0
            inside = Order(int(last[at] - first), self.seed, f"{self.name} window {at}")
            places = first + inside.permuted(offsets[here] - first, number)
            which = np.searchsorted(ends, places, side="right")
            result[here] = starts[blocks[which]] + places - (ends - sizes)[which]
        return result


@lru_cache(maxsize=8)
def _blocks_of_pass(count: int, seed: int, name: str, number: int) -> NDArray[np.int64]:
    return Order(count, seed, f"{name} blocks").indices(number * count, count)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser (Steele et al. 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
