"""Webdataset shards, tar files of images: read record by record from an index, which is made once.

An archive that breaks off, or in which a header is destroyed, is refused: what comes after could not be found, and the
set would be a shorter one without a word.
"""

import os
import re
import tarfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from certood.data.formats import Indices, Source, digest_of, forget
from certood.data.places import PICTURES
from certood.data.shards import streamed
from certood.errors import DataError, LostFile

BLANK = bytes(tarfile.BLOCKSIZE)
PICTURE = re.compile(rb"[^/](%s)\Z" % b"|".join(re.escape(ending.encode()) for ending in PICTURES), re.IGNORECASE)


def webdataset(paths: Sequence[Path], where: str) -> Source:
    """Records of tar shards, by an index that is kept where `datasets` keeps its copies."""
    import datasets

    digest = digest_of(paths)
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "certood" / f"{digest}.npy"
    index = _kept(cache)
    if index is None:
        _keep(np.concatenate([_members(number, path) for number, path in enumerate(paths)]), cache)
        index = _kept(cache)
    if index is None:
        raise DataError(f"{cache} cannot be read back; set HF_HOME to another folder")

    def encoded(indices: Indices) -> list[bytes]:
        places = np.array(index[indices])  # a copy, since its pages are given back
        forget(index)
        return [_record(paths[number], offset, size) for number, offset, size in places.tolist()]

    def named(indices: Indices) -> list[str]:
        numbers = np.array(index[indices, 0])
        forget(index)
        return [f"{paths[number]}, image {at}" for number, at in zip(numbers, indices, strict=True)]

    return streamed(len(index), encoded, digest, where, named)


def _record(path: Path, offset: int, size: int) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        raise LostFile(f"{path}: cannot be read any more ({error.strerror or error})") from None
    if len(data) < size:
        raise LostFile(f"{path}: has become shorter since it was opened")
    return data


def _kept(cache: Path) -> np.memmap[tuple[int, int], np.dtype[np.int64]] | None:
    """The index as it was kept, None where it was not or is damaged.  # [N, 3]: file, offset, size"""
    try:
        index = np.load(cache, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return index if index.dtype == np.int64 and index.ndim == 2 and index.shape[1] == 3 else None


def _keep(index: Indices, cache: Path) -> None:
    """Under a name of one's own first: other processes, here or on other machines, may index the same shards."""
    beside = cache.with_name(f".{cache.stem}.{uuid.uuid4().hex}.part")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            np.save(file, index)
        beside.replace(cache)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise DataError(f"cannot write {cache}: {error.strerror}; set HF_HOME to a folder with space") from None


def _members(number: int, path: Path) -> Indices:
    """Where the pictures of an archive lie.  # [N, 3]"""
    try:
        found = _plain_members(path)
        if found is None:
            found = _all_members(path)
    except tarfile.TarError as error:
        raise DataError(f"{path}: not a readable tar file ({error}); write or download it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    return np.array([(number, *place) for place in found], np.int64).reshape(-1, 3)


def _all_members(path: Path) -> list[tuple[int, int]]:
    """By `tarfile`, which ends without a word at a header that it cannot read, and at the end of a cut file."""
    with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
        found = [
            (member.offset_data, member.size)
            for member in archive
            if member.isfile() and Path(member.name).suffix.lower() in PICTURES
        ]
        if not _ends(cast(BinaryIO, file), archive.offset):
            raise tarfile.ReadError(f"it breaks off at byte {archive.offset:,} of {path.stat().st_size:,}")
        return found


def _plain_members(path: Path) -> list[tuple[int, int]] | None:
    """The same from the headers' bytes, many times as fast as `tarfile`; None where a header says more than name, kind
    and size, or where the archive does not end as it should: those are left to it."""
    found, place = list[tuple[int, int]](), 0
    with path.open("rb", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        while place < end:
            file.seek(place)
            header = file.read(tarfile.BLOCKSIZE)
            if header == BLANK:
                return found if _ends(cast(BinaryIO, file), place) else None
            kind, size = header[156:157], header[124:135]  # as ustar lays them out
            if header[257:262] != b"ustar" or kind not in (b"0", b"5") or header[345] or size.strip(b"01234567"):
                return None
            check = header[148:156].strip(b" \0")  # the sum of all bytes, its own eight taken as blanks
            if check.strip(b"01234567") or int(b"0" + check, 8) != sum(header) - sum(header[148:156]) + 8 * ord(" "):
                return None
            length, place = int(size, 8), place + tarfile.BLOCKSIZE
            if kind == b"0" and PICTURE.search(header[:100].partition(b"\0")[0]):
                found.append((place, length))
            place += -(-length // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return None


def _ends(file: BinaryIO, place: int) -> bool:
    """Whether an archive ends there as it should: a block of zeros, and no more than zeros after it."""
    file.seek(place)
    if file.read(tarfile.BLOCKSIZE) != BLANK:
        return False
    while block := file.read(1 << 20):
        if block.strip(b"\0"):
            return False
    return True
