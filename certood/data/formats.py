"""Image files that hold plain arrays: npz, npy, idx, CIFAR's binary version, SVHN's .mat, tiny_images.bin.

Each reader gives a `Source`: raw uint8 images by index, before any view. Nothing is written, nothing is guessed: a file
whose size contradicts its header is an error that names it.
"""

import gzip
import hashlib
import math
import mmap
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from certood.data import matlab
from certood.data.leaving_out import LEFT_OUT, LISTS, left_out, skip
from certood.data.matlab import MOST_PACKED
from certood.data.order import Blocks
from certood.data.views import Pixels
from certood.errors import DataError

Indices = npt.NDArray[np.int64]
LARGE = 1 << 30  # bytes: beyond this, digests sample a file instead of reading it


@final
@dataclass(frozen=True)
class Source:
    """Images as a file holds them. `read(indices)` gives [n, H, W], [n, H, W, C] or a list of [H, W(, C)]."""

    length: int
    read: Callable[[Indices], Pixels | Sequence[Pixels]]
    digest: str
    where: str  # for messages
    labels: Indices | None = None
    class_names: tuple[str, ...] = ()
    encoded: Callable[[Indices], list[bytes]] | None = None  # the compressed images, where the file holds such
    slow: bool = False  # reading costs more than copying: decompress or draw once, not once an epoch
    blocks: Blocks | None = None  # where it is read block by block


def digest_of(paths: Sequence[Path]) -> str:
    """sha256 over the files' names and contents; above 1 GiB they count by size, mtime, and 1 MiB from both ends."""
    digest = hashlib.sha256()
    large = sum(path.stat().st_size for path in paths) > LARGE
    ends = (1 << 20) // len(paths) + 1 if len(paths) > 1 else 1 << 20  # bytes
    for path in paths:
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0".encode())
        with path.open("rb") as file:
            if not large or status.st_size <= 2 * ends:
                while block := file.read(1 << 20):
                    digest.update(block)
                continue
            digest.update(str(status.st_mtime_ns).encode() + file.read(ends))
            file.seek(-ends, 2)
            digest.update(file.read())
    return digest.hexdigest()


def from_arrays(images: Any, labels: Any, *, digest: str, where: str, class_names: tuple[str, ...] = ()) -> Source:
    """A source over one array [N, H, W], [N, H, W, C] or [N, C, H, W] (C = 1 or 3) and labels [N] or None."""
    images = np.asanyarray(images)
    if images.dtype != np.uint8:
        raise DataError(f"{where}: images are {images.dtype}; save them as uint8, 0 to 255")
    if images.ndim not in (3, 4):
        raise DataError(f"{where}: images have shape {images.shape}; expected [N, H, W], [N, H, W, C] or [N, C, H, W]")
    if images.ndim == 4 and images.shape[3] not in (1, 3):
        if images.shape[1] not in (1, 3):
            raise DataError(f"{where}: images have shape {images.shape}; expected 1 (grey) or 3 (RGB) channels")
        images = images.transpose(0, 2, 3, 1)
    if labels is not None:
        labels = np.asarray(labels).reshape(-1)
        if len(labels) != len(images) or labels.dtype.kind not in "iu":
            raise DataError(
                f"{where}: {len(images)} images but {len(labels)} labels ({labels.dtype}); need integers, equally many"
            )
        labels = labels.astype(np.int64)
    return Source(len(images), lambda indices: images[indices], digest, where, labels, class_names)


def npz(path: Path) -> Source:
    """Arrays `images` and, optionally, `labels`."""
    try:
        _refuse_bomb(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if "images" not in archive:
                raise DataError(f"{path}: no array called 'images'; found {', '.join(archive) or 'none'}")
            images, labels = archive["images"], archive.get("labels")
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and numpy each fail in ways of their own on a damaged file
        raise DataError(f"{path}: not a readable npz file ({_short(error)}); write it again with numpy.savez") from None
    return from_arrays(images, labels, digest=digest_of([path]), where=str(path))


def _refuse_bomb(path: Path) -> None:
    """An archive that would be much larger in memory than it is on the disk, or says that it is."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = read(file)
            size = math.prod(shape) * kind.itemsize
            if size > member.file_size or (size > LARGE and size > MOST_PACKED * member.compress_size):
                raise ValueError(f"{member.filename} would take {size} bytes, and has {member.compress_size} here")


def npy(path: Path) -> Source:
    """One array of images without labels, memory-mapped (300K_random_images.npy)."""
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a header is Python's notation: numpy, ast and tokenize may fail on it
        raise DataError(f"{path}: not a readable npy file ({_short(error)}); download it again") from None
    source = from_arrays(scattered(images), None, digest=digest_of([path]), where=str(path))

    def read(indices: Indices) -> Pixels | Sequence[Pixels]:
        pixels = source.read(indices)
        forget(images)
        return pixels

    return replace(source, read=read)


def idx(paths: Sequence[Path]) -> Source:
    """MNIST's format, plain or gzipped: the images file and, optionally, the labels file."""
    images, *labels = [_idx_array(path) for path in paths]
    if images.ndim != 3:
        raise DataError(f"{paths[0]}: holds an array of {images.ndim} dimensions; an idx file of images has 3")
    return from_arrays(images, labels[0] if labels else None, digest=digest_of(paths), where=str(paths[0]))


def _idx_array(path: Path) -> Pixels:
    # Header: two zero bytes, the type (8: unsigned byte), the number of dimensions, each length as big-endian int32.
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4)
            lengths = file.read(4 * head[3]) if len(head) == 4 else b""
            if len(head) < 4 or head[:3] != b"\0\0\x08" or len(lengths) < 4 * head[3]:
                begins = head.hex() or "with nothing"
                raise DataError(f"{path}: not an idx file of unsigned bytes (it begins {begins})")
            shape = tuple(int(length) for length in np.frombuffer(lengths, ">u4"))
            size = math.prod(shape)
            most = path.stat().st_size * (1032 if path.suffix == ".gz" else 1)  # gzip cannot pack more tightly
            data = file.read(size + 1) if size <= most else b""
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({_short(error)}); download it again") from None
    if len(data) != size:
        found = "more" if len(data) > size else f"{len(data)}" if size <= most else "fewer"
        raise DataError(f"{path}: its header {shape} asks for {size} bytes, and {found} are there; download it again")
    return np.frombuffer(data, np.uint8).reshape(shape)


def cifar(paths: Sequence[Path]) -> Source:
    """CIFAR's binary version: one label byte (CIFAR-10) or two, coarse and fine (CIFAR-100), then red, green, blue."""
    label_bytes = 2 if paths[0].name in ("train.bin", "test.bin") else 1
    parts = []
    for path in paths:
        data = np.fromfile(path, np.uint8)
        if not len(data) or len(data) % (label_bytes + 3072):
            raise DataError(f"{path}: {len(data)} bytes are no multiple of {label_bytes + 3072}; download it again")
        parts.append(data.reshape(-1, label_bytes + 3072))
    records = np.concatenate(parts)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return from_arrays(images, records[:, label_bytes - 1], digest=digest_of(paths), where=str(paths[0]))


def svhn_mat(path: Path) -> Source:
    """SVHN's cropped digits: X is [32, 32, 3, N], y is [N, 1] with 10 for the digit 0."""
    try:
        content = matlab.arrays(path)
        images, labels = content["X"].transpose(3, 0, 1, 2), content["y"].reshape(-1)
        if not (np.abs(labels) < 2**31).all():
            raise ValueError("labels that are none")
    except (OSError, ValueError, KeyError, zlib.error) as error:
        raise DataError(f"{path}: not SVHN's .mat file with X and y ({_short(error)}); download it again") from None
    return from_arrays(images, labels.astype(np.int64) % 10, digest=digest_of([path]), where=str(path))


def tiny_images(path: Path) -> Source:
    """80 Million Tiny Images, memory-mapped: 3072 bytes an image, (32, 32, 3) in Fortran order. See `left_out`."""
    size = path.stat().st_size
    if not size or size % 3072:
        raise DataError(f"{path}: {size} bytes are no multiple of 3072, the size of one image; the copy is incomplete")
    total = size // 3072
    lists = [file for file in (path.with_name(name) for name in LEFT_OUT) if file.is_file()]
    if not lists:
        raise DataError(
            f"{path}: no list of the CIFAR images in it; put {LISTS} beside it (an empty left_out.txt keeps all images)"
        )
    gone = left_out(lists, total)
    data = scattered(np.memmap(path, np.uint8, "r", shape=(total, 3, 32, 32)))  # Fortran order: [channel, column, row]

    def read(chosen: Indices) -> Pixels:
        pixels = data[skip(chosen, gone)].transpose(0, 3, 2, 1)
        forget(data)
        return pixels

    return Source(total - len(gone), read, digest_of([path, *lists]), str(path))


def scattered(mapped: np.memmap[Any, Any]) -> np.memmap[Any, Any]:
    """Read what is asked for and not 128 kB around it, of which a training in random order uses one image."""
    if hasattr(mmap, "MADV_RANDOM"):
        mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    return mapped


def forget(mapped: np.memmap[Any, Any]) -> None:
    """Give pages back that were read: they stay in the system's cache, but no longer count as this process's memory,
    which would otherwise grow to the size of the file."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _short(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]
