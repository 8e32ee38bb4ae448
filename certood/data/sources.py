"""`load`: a named image set, or a file or folder of one's own, in the form that a network takes."""

import hashlib
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from certood.data import classes, entries, formats, noise, overlap, places
from certood.data.adapting import adapted, labels_of
from certood.data.formats import Indices, Source
from certood.data.order import Blocks
from certood.data.views import VIEWS, View
from certood.errors import DataError, MissingSplit

Images = npt.NDArray[Any]  # uint8, or float32 in [0, 1] for drawn noise

SPLITS = ("train", "test")
HUB = "hub:"  # hub:<owner>/<set> is read from the hub as it is trained with, without a copy


@final
@dataclass(frozen=True)
class ImageSet:
    """One split of one image set, adapted to a network: `images(indices)` and `labels(indices)`, any order, any batch.

    `digest` identifies the images as used: the files (or the drawing rule), the view, the form and the limit.
    """

    name: str
    split: str
    shape: tuple[int, int, int]  # C, H, W
    classes: int  # 0 where there are no labels
    class_names: tuple[str, ...]
    digest: str
    _length: int = field(repr=False)
    _images: Callable[[Indices], Images] = field(repr=False)
    _labels: Indices | None = field(repr=False)
    blocks: Blocks | None = field(default=None, repr=False)  # where it is read block by block
    corrupt: tuple[int, ...] = field(default=(), repr=False)  # images that the files hold and that cannot be read

    def __len__(self) -> int:
        return self._length

    def images(self, indices: npt.NDArray[Any]) -> Images:
        """[n, C, H, W], uint8 for sets that come from files, float32 in [0, 1] for noise."""
        return self._images(self._checked(indices))

    def labels(self, indices: npt.NDArray[Any]) -> Indices:
        """[n] int64, -1 where the set has none."""
        indices = self._checked(indices)
        return np.full(len(indices), -1, np.int64) if self._labels is None else self._labels[indices]

    def as_class(self, label: int, class_names: tuple[str, ...]) -> "ImageSet":
        """The same images, all of one class among others."""
        labels = np.full(len(self), label, np.int64)
        return replace(self, classes=len(class_names), class_names=class_names, _labels=labels)

    def _checked(self, indices: npt.NDArray[Any]) -> Indices:
        indices = np.asarray(indices, np.int64)
        if indices.size and (indices.min() < 0 or indices.max() >= self._length):
            wrong = indices.min() if indices.min() < 0 else indices.max()
            raise DataError(f"{self.name}/{self.split} has no image {wrong}; indices run from 0 to {self._length - 1}")
        return indices


def load(
    name: str,
    split: str,
    *,
    folder: Path | None,
    channels: int,
    size: int,
    margin: int = 0,
    limit: int | None = None,
    to_train_against: bool = False,
    without: str = "none",
) -> ImageSet:
    """The split of a set: from `folder`, else built in or drawn, else a path, else the hub.

    `name` is a name of the catalogue, the name of a folder in `folder`, `permuted_pixels:<set>`, `hub:<owner>/<set>`
    (streamed), or a path. Images come as [channels, size + margin, size + margin]; `limit` takes so many, see
    `adapting.chosen`. A set `to_train_against` has no labels, is streamed where it is large, and goes without its
    corrupt records. `without` leaves out the classes that another set has.
    """
    if split not in SPLITS:
        raise DataError(f"there is no split {split!r}; certood has train and test")
    if channels not in (1, 3) or size < 1 or margin < 0:
        raise DataError(f"no network takes {channels} channels of size {size}, margin {margin}; channels are 1 or 3")
    if limit is not None and limit < 1:
        raise DataError(f"a limit of {limit} images leaves none; give at least 1")
    if name.startswith(entries.PERMUTED):
        inner = load(
            name.removeprefix(entries.PERMUTED),
            split, folder=folder, channels=channels, size=size, margin=margin, limit=limit,
            to_train_against=to_train_against, without=without,
        )  # fmt: skip
        return _permuted(inner)
    shape = (channels, size + margin, size + margin)
    entry = entries.find(name)
    if entry is not None and split not in entry.sizes:
        raise MissingSplit(f"{name} has no {split} split, only {' and '.join(entry.sizes)}")
    if entry is not None and entry.kind == "noise":
        images, rule = noise.drawing(name, split, shape)
        length = min(limit or entry.sizes[split], entry.sizes[split])
        digest = hashlib.sha256(f"{rule} {length}".encode()).hexdigest()
        return ImageSet(name, split, shape, 0, (), digest, length, images, None)
    source = _without_left_out(open_source(name, split, folder, to_train_against), name, split, folder)
    if without != "none":
        place = None if name.startswith(HUB) else whereabouts_of(name, split, folder)
        if place is None or place.kind != "tiny_images":  # which has no classes; a list of indices trims it
            source = overlap.without(source, classes.of_other(source, without, place.paths[0] if place else None))
    view = VIEWS.get(name, View())
    found = adapted(source, view, channels, size, margin, limit, without_corrupt=to_train_against)
    labels, number, names = (None, 0, ()) if to_train_against else labels_of(source, entry)
    labels = labels if labels is None or found.rows is None else labels[found.rows]
    digest = hashlib.sha256(f"{source.digest} {astuple(view)} {shape} {size} {found.length}".encode()).hexdigest()
    return ImageSet(
        title(name),
        split,
        shape,
        number,
        names,
        digest,
        found.length,
        found.images,
        labels,
        found.blocks,
        found.corrupt,
    )


def _without_left_out(source: Source, name: str, split: str, folder: Path | None) -> Source:
    """Without the images that `certood data overlap` found in another set, if it was asked to look for them."""
    place = None if name.startswith(HUB) else whereabouts_of(name, split, folder)
    gone = overlap.left_out(place.paths[0], split, source.digest) if place else None
    return source if gone is None else overlap.without(source, gone)


def open_source(name: str, split: str, folder: Path | None, large: bool = False) -> Source:
    """The raw images of a set that is not noise, from wherever `load` would take them; `large`: streamed if it is."""
    if name.startswith(HUB):
        from certood.data import shards

        return shards.on_the_hub(name.removeprefix(HUB), split)
    entry = entries.find(name)
    if entry is not None and entry.kind == "demo":
        from certood.data import demo

        return demo.source(name, split)
    place = whereabouts_of(name, split, folder)
    if place is not None:
        return _streamed(place) if large and _is_large(place) else _opened(place)
    entry = entries.known(name)
    from certood.data import encoded

    found = encoded.from_hub(entry, entry.hub, split) if entry.hub else None
    if found is None:
        here = f"is not in {folder}" if folder else "needs a data folder (--data DIR)"
        online = f", and the hub ({entry.hub}) cannot be reached" if entry.hub else ""
        raise MissingSplit(f"{name}/{split} {here}{online}. To get it: {entry.obtain} Layouts read: {places.LAYOUTS}.")
    return found


def whereabouts_of(name: str, split: str, folder: Path | None) -> places.Place | None:
    """The local files of a split: in the data folder, or, where the name is a path, there."""
    if folder is not None:
        if folder.is_file():
            raise DataError(f"the data folder {folder} is a file; give the folder that holds <name>/<split>.parquet")
        if not folder.is_dir():
            raise DataError(f"the data folder {folder} does not exist; create it, or leave --data out to use the hub")
        if place := places.locate(folder / name, split):
            return place
    if entries.find(name) is not None:
        return None
    candidates = [Path(name)] if folder is None else [Path(name), folder / name]
    root = next((path for path in candidates if name and places.present(path)), None)
    if root is None:
        return None
    if place := places.locate(root, split) or places.pictures(root):
        return place
    raise MissingSplit(f"{root}: no {split} split and no images in this folder; expected {places.LAYOUTS}")


def _is_large(place: places.Place) -> bool:
    from certood.data import shards

    shards_of = place.kind in ("parquet", "webdataset")
    return shards_of and sum(path.stat().st_size for path in place.paths) > shards.LARGE


def _streamed(place: places.Place) -> Source:
    from certood.data import archives, shards

    if place.kind == "webdataset":
        return archives.webdataset(place.paths, place.where)
    return shards.parquet(place.paths, place.where, formats.digest_of(place.paths))


def _opened(place: places.Place) -> Source:
    path = place.paths[0]
    try:
        match place.kind:
            case "npz":
                return formats.npz(path)
            case "npy":
                return formats.npy(path)
            case "idx":
                return formats.idx(place.paths)
            case "cifar":
                return formats.cifar(place.paths)
            case "mat":
                return formats.svhn_mat(path)
            case "tiny_images":
                return formats.tiny_images(path)
            case "parquet" | "folder" | "webdataset":
                from certood.data import encoded

                return encoded.from_files(place)
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror or error}") from None


def title(name: str) -> str:
    """What a set is called: its name, or for a path the last part of it that says something."""
    path = Path(name).resolve()
    if not path.is_file():
        return path.name
    return path.parent.name if path.stem in SPLITS else path.stem


def _permuted(inner: ImageSet) -> ImageSet:
    def images(indices: Indices) -> Images:
        return noise.permute_pixels(inner.images(indices), indices, inner.split)

    digest = hashlib.sha256(f"permuted {noise.SEEDS[inner.split]} {inner.digest}".encode()).hexdigest()
    return ImageSet(
        entries.PERMUTED + inner.name, inner.split, inner.shape, 0, (), digest, len(inner), images, None,
        inner.blocks, inner.corrupt,
    )  # fmt: skip
