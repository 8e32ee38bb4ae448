"""Sets too large to be copied: sharded parquet, here or on the hub, read row group by row group in the memory of a
window, however many images there are. They have no labels, since they are out-distributions to train with."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from certood.data.encoded import decode
from certood.data.formats import Indices, Source
from certood.data.order import Blocks
from certood.data.views import Pixels
from certood.errors import CorruptBlock, DataError, LostFile

LARGE = 4 << 30  # bytes of files beyond which `datasets` is not asked for its copy
HELD = 64 << 20  # bytes of compressed images that a window of row groups holds
LARGEST = 256 << 20  # bytes of a row group, which cannot be read in part
COLUMNS = ("image", "img", "png", "jpg", "jpeg", "bytes")


class Group(NamedTuple):
    """A row group of a file."""

    file: Any
    number: int
    column: str
    rows: int
    size: int  # bytes of its images


def parquet(files: Sequence[Any], where: str, digest: str) -> Source:
    """Row groups of parquet files, in their order; `files` are paths or what fsspec opens."""
    groups = [group for file in files for group in _groups(file, where) if group.rows]
    starts = np.cumsum([0, *(group.rows for group in groups)], dtype=np.int64)
    window = int(np.clip(HELD * max(1, len(groups)) // max(1, sum(group.size for group in groups)), 1, 64))
    held = _Held(groups, starts, window, where)
    return streamed(int(starts[-1]), held.encoded, digest, where, held.named, Blocks(starts, window))


def _groups(file: Any, where: str) -> list[Group]:
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    name, found = _name(file, where), list[Group]()
    try:
        metadata = pq.ParquetFile(file).metadata
    except Exception as error:  # pyarrow's own, or what a file system says that fsspec reaches
        raise DataError(f"{name}: not readable as parquet ({_short(error)}); write or download it again") from None
    columns = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    column = _column(columns, name)
    for number in range(metadata.num_row_groups):
        described = metadata.row_group(number)
        size = described.column(columns.index(column)).total_uncompressed_size
        if size > LARGEST:
            raise DataError(
                f"{name}: a row group of {size >> 20} MB must be held at once; write it again with "
                f"row groups of a few thousand images (certood data prepare)"
            )
        found.append(Group(file, number, column, described.num_rows, size))
    return found


def _column(names: Sequence[str], where: str) -> str:
    """`image.bytes` in the hub's layout, `image` where the bytes stand there themselves."""
    for name in COLUMNS:
        for path in (f"{name}.bytes", name):
            if path in names:
                return path
    raise DataError(f"{where}: no column of images; found {', '.join(names)}, expected `image`")


def _name(file: Any, where: str) -> str:
    """For messages: a file that fsspec opened knows its path."""
    return str(file if isinstance(file, Path) else getattr(file, "path", where))


@final
class _Held:
    """The row groups that were asked for last, compressed. Every process that reads has its own."""

    def __init__(self, groups: list[Group], starts: Indices, window: int, where: str) -> None:
        self.groups, self.starts, self.where = groups, starts, where
        self.most = 2 * window  # a batch may end one window and begin the next
        self.held: OrderedDict[int, Any] = OrderedDict()
        self.broken: dict[int, str] = {}  # why; reading one again would take as long and say the same

    def encoded(self, indices: Indices) -> list[bytes]:
        return [
            self._group(int(block))[int(index - self.starts[block])].as_py() or b""
            for block, index in zip(self._blocks(indices), indices, strict=True)
        ]

    def named(self, indices: Indices) -> list[str]:
        files = [_name(self.groups[block].file, self.where) for block in self._blocks(indices)]
        return [f"{file}, image {index}" for file, index in zip(files, indices, strict=True)]

    def _blocks(self, indices: Indices) -> Indices:
        return np.searchsorted(self.starts, indices, side="right") - 1

    def _group(self, block: int) -> Any:
        if block in self.broken:
            raise CorruptBlock(self.broken[block])
        if block not in self.held:
            self.held[block] = self._read(block)
        self.held.move_to_end(block)
        while len(self.held) > self.most:
            self.held.popitem(last=False)
        return self.held[block]

    def _read(self, block: int) -> Any:
        import pyarrow.parquet as pq

        file, number, column, _, _ = self.groups[block]
        name = _name(file, self.where)
        try:
            opened = pq.ParquetFile(file)
        except Exception as error:  # it could be opened when training began
            raise LostFile(f"{name}: cannot be read any more ({_short(error)})") from None
        try:
            # No threads: pyarrow's do not survive the fork of a process that reads ahead.
            values = opened.read_row_group(number, columns=[column], use_threads=False).column(0).combine_chunks()
        except Exception as error:
            if not _damaged(error):
                raise LostFile(f"{name}: cannot be read any more ({_short(error)})") from None
            self.broken[block] = f"{name}: row group {number} is damaged ({_short(error)})"
            raise CorruptBlock(self.broken[block]) from None
        return values.field("bytes") if "." in column else values


def _damaged(error: Exception) -> bool:
    """Whether pyarrow says that it read what is no parquet: by ArrowInvalid, or by an OSError without a number, which
    what the operating system says has. What fsspec's file systems say are classes of their own."""
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

    return isinstance(error, pa.ArrowInvalid) or (type(error) is OSError and error.errno is None)


def _short(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


def streamed(
    length: int, encoded: Callable[[Indices], list[bytes]], digest: str, where: str,
    named: Callable[[Indices], list[str]], blocks: Blocks | None = None,
) -> Source:  # fmt: skip
    """`named`: what messages call images, with the file that each is in."""

    def read(indices: Indices) -> list[Pixels]:
        return decode(encoded(indices), named(indices))

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
