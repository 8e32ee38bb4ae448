"""Sets too large to be copied: sharded parquet, here or on the hub, read row group by row group, and webdataset shards,
read record by record from an index. Both take the memory of a window, however many images there are; neither has
labels, since they are out-distributions to train with.
"""

import os
import re
import tarfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from certood.data.encoded import decode
from certood.data.formats import Indices, Source, digest_of
from certood.data.order import Blocks
from certood.data.places import PICTURES
from certood.data.views import Pixels
from certood.errors import CorruptRecord, DataError

LARGE = 4 << 30  # bytes of files beyond which `datasets` is not asked for its copy
HELD = 64 << 20  # bytes of compressed images that a window of row groups holds
LARGEST = 256 << 20  # bytes of a row group, which cannot be read in part
PICTURE = re.compile(rb"[^/](%s)\Z" % b"|".join(re.escape(ending.encode()) for ending in PICTURES), re.IGNORECASE)
COLUMNS = ("image", "img", "png", "jpg", "jpeg", "bytes")


def parquet(files: Sequence[Any], where: str, digest: str) -> Source:
    """Row groups of parquet files, in their order; `files` are paths or what fsspec opens."""
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    groups: list[tuple[int, int]] = []  # file, row group
    rows: list[int] = []
    total, column = 0, ""
    try:
        for number, file in enumerate(files):
            metadata = pq.ParquetFile(file).metadata
            names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
            column = _column(names, where)
            at = names.index(column)
            for group in range(metadata.num_row_groups):
                described = metadata.row_group(group)
                size = described.column(at).total_uncompressed_size
                if size > LARGEST:
                    raise DataError(
                        f"{where}: a row group of {size >> 20} MB must be held at once; write it again with "
                        f"row groups of a few thousand images (certood data prepare)"
                    )
                groups.append((number, group))
                rows.append(described.num_rows)
                total += size
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{where}: not readable as parquet ({str(error)[:160]}); write or download it again") from None
    kept = [at for at, count in enumerate(rows) if count]
    starts = np.concatenate([[0], np.cumsum([rows[at] for at in kept], dtype=np.int64)]).astype(np.int64)
    window = int(np.clip(HELD * max(1, len(kept)) // max(1, total), 1, 64))
    held = _Held(files, [groups[at] for at in kept], column, starts, window, where)
    return _source(int(starts[-1]), held.encoded, digest, where, Blocks(starts, window))


def _column(names: Sequence[str], where: str) -> str:
    """`image.bytes` in the hub's layout, `image` where the bytes stand there themselves."""
    for name in COLUMNS:
        for path in (f"{name}.bytes", name):
            if path in names:
                return path
    raise DataError(f"{where}: no column of images; found {', '.join(names)}, expected `image`")


@final
class _Held:
    """The row groups that were asked for last, compressed. Every process that reads has its own."""

    def __init__(
        self, files: Sequence[Any], groups: list[tuple[int, int]], column: str, starts: Indices, window: int, where: str
    ) -> None:
        self.files, self.groups, self.column, self.starts = files, groups, column, starts
        self.where, self.most = where, 2 * window  # a batch may end one window and begin the next
        self.held: OrderedDict[int, Any] = OrderedDict()

    def encoded(self, indices: Indices) -> list[bytes]:
        blocks = np.searchsorted(self.starts, indices, side="right") - 1
        return [
            self._group(int(block))[int(index - self.starts[block])].as_py() or b""
            for block, index in zip(blocks, indices, strict=True)
        ]

    def _group(self, block: int) -> Any:
        if block in self.held:
            self.held.move_to_end(block)
            return self.held[block]
        import pyarrow as pa
        import pyarrow.parquet as pq

        number, group = self.groups[block]
        try:
            # No threads: pyarrow's do not survive the fork of a process that reads ahead.
            file = pq.ParquetFile(self.files[number])
            table = file.read_row_group(group, columns=[self.column], use_threads=False)
        except (OSError, pa.ArrowInvalid) as error:
            raise CorruptRecord(f"{self.where}: row group {group} of file {number} ({str(error)[:120]})") from None
        values = table.column(0).combine_chunks()
        self.held[block] = values.field("bytes") if "." in self.column else values
        while len(self.held) > self.most:
            self.held.popitem(last=False)
        return self.held[block]


def webdataset(paths: Sequence[Path], where: str) -> Source:
    """Records of tar shards, by an index that is made once and kept where `datasets` keeps its copies."""
    import datasets

    digest = digest_of(paths)
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "certood" / f"{digest}.npy"
    if not cache.is_file():
        try:
            cache.parent.mkdir(parents=True, exist_ok=True)
            members = np.concatenate([_members(number, path) for number, path in enumerate(paths)])
            beside = cache.with_suffix(".part.npy")
            np.save(beside, members)
            beside.replace(cache)
        except tarfile.TarError as error:
            raise DataError(f"{where}: not a readable tar file ({error}); write or download it again") from None
        except OSError as error:
            raise DataError(f"cannot write {cache}: {error.strerror}; set HF_HOME to a folder with space") from None
    index = np.load(cache, mmap_mode="r")  # [N, 3]: file, offset, size

    def encoded(indices: Indices) -> list[bytes]:
        records: list[bytes] = []
        for number, offset, size in np.asarray(index[indices]).tolist():
            with paths[number].open("rb", buffering=0) as file:
                file.seek(offset)
                records.append(file.read(size))
        return records

    return _source(len(index), encoded, digest, where)


def _members(number: int, path: Path) -> Indices:
    """Where the pictures of an archive lie.  # [N, 3]"""
    found = _plain_members(path)
    if found is None:
        with tarfile.open(path, "r:") as archive:
            found = [
                (member.offset_data, member.size)
                for member in archive
                if member.isfile() and Path(member.name).suffix.lower() in PICTURES
            ]
    return np.array([(number, *place) for place in found], np.int64).reshape(-1, 3)


def _plain_members(path: Path) -> list[tuple[int, int]] | None:
    """The same from the headers' bytes, many times as fast as `tarfile`; None where a header says more than name, kind
    and size, or where the archive does not end as it should: those are left to it."""
    found, place, blank = list[tuple[int, int]](), 0, bytes(tarfile.BLOCKSIZE)
    with path.open("rb", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        while place < end:
            file.seek(place)
            header = file.read(tarfile.BLOCKSIZE)
            if header == blank:
                return found
            kind, size = header[156:157], header[124:135]  # as ustar lays them out
            if header[257:262] != b"ustar" or kind not in (b"0", b"5") or header[345] or size.strip(b"01234567"):
                return None
            length, place = int(size, 8), place + tarfile.BLOCKSIZE
            if kind == b"0" and PICTURE.search(header[:100].partition(b"\0")[0]):
                found.append((place, length))
            place += -(-length // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return None


def _source(length: int, encoded: Any, digest: str, where: str, blocks: Blocks | None = None) -> Source:
    def read(indices: Indices) -> list[Pixels]:
        return decode(encoded(indices), [f"{where}, image {index}" for index in indices])

    return Source(length, read, digest, where, encoded=encoded, slow=True, blocks=blocks)


def on_the_hub(name: str, split: str) -> Source:
    """`hub:owner/set`: the parquet files of a split, read where they are. `datasets` knows which files these are."""
    import datasets
    import fsspec  # type: ignore[import-untyped, unused-ignore]

    try:
        found = datasets.load_dataset_builder(name).config.data_files
        urls = [url for url in (found or {}).get(split, ()) if str(url).endswith(".parquet")]
        if not urls:
            raise DataError(
                f"hub:{name} has no parquet files of a split {split!r}; found {', '.join(found or ()) or 'none'}"
            )
        files = [fsspec.open(url, "rb").open() for url in urls]
    except DataError:
        raise
    except Exception as error:  # whatever the hub's client, a proxy or a file system says
        raise DataError(f"hub:{name} cannot be read ({str(error).splitlines()[0][:160]})") from None
    return parquet(files, f"hub:{name}", f"hub:{name} {split} {' '.join(map(str, urls))}")
