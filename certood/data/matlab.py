"""Plain arrays in a MATLAB 5 file, which is how SVHN is published.

Read here and not with scipy.io.loadmat, whose compiled reader ends the whole process on some damaged files (found by
tests/fuzzing.py). The format: a header of 128 bytes, then elements of (type, size, content), maybe compressed; a matrix
is an element of elements: flags, dimensions, name, numbers column by column (MathWorks, "MAT-File Format", version 5).
"""

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
COMPLEX = 0x08
MOST_PACKED = 100  # times smaller than in memory: more is no image set but a bomb


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The real, dense arrays of a file by name; whatever else is in it is passed over. ValueError if it is damaged."""
    data = memoryview(path.read_bytes())
    if bytes(data[124:128]) != b"\x00\x01IM":
        raise ValueError("no MATLAB file of version 5")
    found, at = {}, 128
    while at < len(data):
        kind, content, at = _element(data, at)
        if kind == COMPRESSED:
            kind, content, _ = _element(_inflated(content), 0)
        if kind == MATRIX:
            name, array = _matrix(content)
            if array is not None:
                found[name] = array
    return found


def _element(data: memoryview, at: int) -> tuple[int, memoryview, int]:
    """Type, content, and where the next one begins."""
    if at + 8 > len(data):
        raise ValueError("it ends in the middle of an element")
    first, size = (int(number) for number in np.frombuffer(data[at : at + 8], "<u4"))
    if first >> 16:  # a small one: size and type share four bytes, the content has the next four
        kind, size, start, end = first & 0xFFFF, first >> 16, at + 4, at + 8
        if size > 4:
            raise ValueError("a small element is large")
    else:
        kind, start = first, at + 8
        end = start + size + (0 if kind == COMPRESSED else -size % 8)
    if start + size > len(data):
        raise ValueError("an element is longer than the file")
    return kind, data[start : start + size], end


def _inflated(content: memoryview) -> memoryview:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(content, MOST_PACKED * len(content) + 2**12)
    if unpacking.unconsumed_tail:
        raise ValueError(f"it is more than {MOST_PACKED} times larger than its file")
    return memoryview(data)


def _matrix(content: memoryview) -> tuple[str, NDArray[Any] | None]:
    parts: list[tuple[int, memoryview]] = []
    at = 0
    while at < len(content) and len(parts) < 4:
        kind, part, at = _element(content, at)
        parts.append((kind, part))
    if len(parts) < 4 or len(parts[0][1]) < 2:
        return "", None
    flags, shape, name, (kind, numbers) = parts[0][1], np.frombuffer(parts[1][1], "<i4"), bytes(parts[2][1]), parts[3]
    if flags[0] not in CLASSES or flags[1] & COMPLEX or kind not in STORED:
        return "", None
    stored = np.frombuffer(numbers, STORED[kind])
    sizes = [int(size) for size in shape]
    if min(sizes, default=0) < 0 or math.prod(sizes) != len(stored):
        raise ValueError(f"an array of {len(stored)} numbers has dimensions {sizes}")
    return name.decode("latin-1"), stored.reshape(sizes, order="F").astype(CLASSES[flags[0]], copy=False)
