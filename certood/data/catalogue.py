"""What stands behind `certood data ...`: the named sets, where each is, a copy as parquet, what two of them share."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from certood.data import entries, overlap
from certood.data.adapting import adapted, labels_of
from certood.data.entries import Entry
from certood.data.formats import Indices, Source
from certood.data.sources import SPLITS, open_source, title, whereabouts_of
from certood.data.views import VIEWS, View
from certood.errors import DataError, MissingSplit

ROWS = 1000  # images written together: one row group of the file

Whereabouts = Literal["local", "hub", "generated", "missing"]
Progress = Callable[[str, int, int], None]  # split, images written, images in all


def catalogue() -> tuple[Entry, ...]:
    """Every set that certood knows by name."""
    return entries.ENTRIES


def whereabouts(entry: Entry, folder: Path | None, split: str | None = None) -> Whereabouts:
    """Where a set (or one split of it) would come from, without opening a file or asking the network.

    "local": files in the data folder; "hub": not there, but the hub has it (its cache perhaps too); "generated": drawn,
    or carried by installed packages; "missing": only the user can get it, `entry.obtain` says how.
    """
    if entry.kind != "files":
        return "generated"
    splits = (split,) if split else tuple(entry.sizes)
    if any(whereabouts_of(entry.name, each, folder) for each in splits):
        return "local"
    return "hub" if entry.hub else "missing"


def prepare(name: str, directory: Path, folder: Path | None, progress: Progress | None = None) -> tuple[Path, ...]:
    """Write every split that can be had as `<directory>/<name>/<split>.parquet` in the hub's image layout.

    The images are written raw, before any view, so that loading the copy gives what loading the source gives. A file
    appears whole or not at all.
    """
    entry = entries.find(name)
    if entry is not None and entry.kind == "noise":
        raise DataError(f"{name} is drawn from a seed; there is nothing to prepare")
    written, unreachable = [], []
    for split in _splits(name, entry, folder):
        target = directory / title(name) / f"{split}.parquet"
        local = entry is not None and entry.kind == "demo"
        if not local:
            place = whereabouts_of(name, split, folder)
            if place is not None and target.resolve() in [path.resolve() for path in place.paths]:
                raise DataError(f"{target} is itself the source of {name}/{split}; name another directory")
            local = place is not None
        try:
            source = open_source(name, split, folder)
        except DataError as error:
            if local:
                raise
            unreachable.append(error)  # a split that is nowhere is no reason to refuse the other
            continue
        _write(source, entry, target, split, progress)
        written.append(target)
    if not written:
        raise unreachable[0]
    return tuple(written)


def leave_out_overlap(
    name: str, insides: Sequence[str], folder: Path | None, distance: int, progress: Progress | None = None
) -> tuple[Path, int, int, int]:
    """Find the training images of a set that others hold too, in any split, and note them beside its files, where
    `load` finds the note. What earlier searches found stays left out, and nothing is searched twice.

    The file, how many are left out, how many of them were not before, and of how many images."""
    split = "train"
    place = whereabouts_of(name, split, folder)
    if place is None:
        raise DataError(f"{name} has no files here to note the overlap beside; certood data prepare writes some")
    outside = open_source(name, split, folder, large=True)
    pairs = [(inside, each) for inside in insides for each in _splits_here(inside, folder)]
    if not pairs:
        raise DataError(f"none of {', '.join(insides)} is here; name sets of {folder or 'a data folder (--data DIR)'}")
    named, sources = [inside for inside, _ in pairs], [open_source(*pair, folder) for pair in pairs]
    against = f"{distance} {' '.join(source.digest for source in sources)}"
    note = overlap.recorded(place.paths[0], split)
    if note is None or note.digest != outside.digest:  # other files than these
        note = overlap.Note(outside.digest, np.empty(0, np.int64), ())
    before = len(note.gone)
    if against not in note.against:
        inside = np.concatenate([_hashes_of(source, each) for each, source in zip(named, sources, strict=True)])
        read, done = _small_and_grey(outside, name), 0

        def further(images: int) -> None:
            nonlocal done
            done += images
            if progress:
                progress(split, done, outside.length)

        gone = np.union1d(note.gone, overlap.alike(read, outside.length, inside, distance, further))
        note = overlap.Note(outside.digest, gone, (*note.against, against))
        overlap.record(place.paths[0], split, note)
    return overlap.file_of(place.paths[0], split), len(note.gone), len(note.gone) - before, outside.length


def _splits_here(name: str, folder: Path | None) -> list[str]:
    entry, found = entries.find(name), list[str]()
    for split in SPLITS:
        with suppress(MissingSplit):  # what a path says that has the other split alone
            if whereabouts_of(name, split, folder) or (entry and entry.kind == "demo"):
                found.append(split)
    return found


def _small_and_grey(source: Source, name: str) -> overlap.Read:
    return adapted(
        source, VIEWS.get(name, View()), 1, overlap.SIDE, 0, None, without_corrupt=True, at_once=False
    ).images


def _hashes_of(source: Source, name: str) -> overlap.Hashes:
    parts = [own[shown] for _, own, shown in overlap.hashed(_small_and_grey(source, name), source.length)]
    return np.concatenate(parts)


def _splits(name: str, entry: Entry | None, folder: Path | None) -> tuple[str, ...]:
    if entry is not None:
        return tuple(entry.sizes)
    places = [whereabouts_of(name, split, folder) for split in SPLITS]
    if places[0] != places[1]:
        return SPLITS
    # One file, or a folder without splits: the same images must not become both.
    return ("test",) if "test" in Path(name).name else ("train",)


def _write(source: Source, entry: Entry | None, target: Path, split: str, progress: Progress | None) -> None:
    import datasets
    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

    labels, classes, names = labels_of(source, entry)
    features: dict[str, Any] = {"image": datasets.Image()}
    if classes:
        features["label"] = datasets.ClassLabel(names=list(names))
    schema = datasets.Features(features).arrow_schema
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _whole_or_not_at_all(target) as temporary, pq.ParquetWriter(temporary, schema) as writer:
            for start in range(0, source.length, ROWS):
                rows = np.arange(start, min(start + ROWS, source.length))
                images = [{"bytes": data, "path": None} for data in _compressed(source, rows)]
                columns: dict[str, Any] = {"image": images}
                if labels is not None:
                    columns["label"] = labels[rows]
                writer.write_table(pa.table(columns, schema=schema))
                if progress:
                    progress(split, int(rows[-1]) + 1, source.length)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot write {target}: {reason}; free space or choose another directory") from None


@contextmanager
def _whole_or_not_at_all(target: Path) -> Iterator[Path]:
    """A name beside the target to write to, which becomes the target if all goes well and vanishes if not."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _compressed(source: Source, rows: Indices) -> list[bytes]:
    """The images as the source has them compressed, else as PNG, which loses nothing."""
    if source.encoded is not None:
        return source.encoded(rows)
    from PIL import Image

    compressed = []
    for pixels in source.read(rows):
        with io.BytesIO() as file:
            Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels).save(file, "PNG")
            compressed.append(file.getvalue())
    return compressed
