"""Where the files of a set are: the layouts that people have on disk, tried in one order."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from certood.errors import DataError

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LAYOUTS = "<split>.parquet, <split>/ with images, <split>.npz, <split>.tar, idx, CIFAR or SVHN files"

Kind = Literal["parquet", "folder", "webdataset", "npz", "npy", "idx", "cifar", "mat", "tiny_images"]


@final
@dataclass(frozen=True)
class Place:
    """Files of one split and how to read them."""

    kind: Kind
    paths: tuple[Path, ...]

    @property
    def where(self) -> str:
        """For messages about all of it: the file, or the folder that holds several."""
        return str(self.paths[0] if len(self.paths) == 1 else self.paths[0].parent)


def locate(root: Path, split: str) -> Place | None:
    """The files of a split under `root` (a folder, or one file that holds whatever split is asked for), or None."""
    try:
        if root.is_file():
            return _file(root)
        return _folder(root, split) if root.is_dir() else None
    except OSError as error:
        raise DataError(f"cannot read {root}: {error.strerror or error}") from None


def _file(path: Path) -> Place:
    name = path.name.lower()
    if name.removesuffix(".gz").endswith("idx3-ubyte"):
        return Place("idx", _with_labels(path))
    if name == "tiny_images.bin":
        return Place("tiny_images", (path,))
    kinds: dict[str, Kind] = {".parquet": "parquet", ".npz": "npz", ".npy": "npy", ".tar": "webdataset", ".mat": "mat"}
    kind = "cifar" if name.endswith(".bin") else kinds.get(path.suffix.lower())
    if kind is None:
        raise DataError(f"{path}: certood does not read {path.suffix or 'such'} files; give {LAYOUTS}")
    return Place(kind, (path,))


def _folder(root: Path, split: str) -> Place | None:
    for pattern in (f"{split}.parquet", f"{split}-*.parquet"):
        if found := tuple(sorted(root.glob(pattern))):
            return Place("parquet", found)
    if (root / split).is_dir():
        return Place("folder", (root / split,))
    if (path := root / f"{split}.npz").exists():
        return Place("npz", (path,))
    for pattern in (f"{split}.tar", f"{split}-*.tar"):
        if found := tuple(sorted(root.glob(pattern))):
            return Place("webdataset", found)
    words = ("train",) if split == "train" else ("t10k", "test")
    for path in sorted(root.glob("*images*idx3-ubyte*")):
        if path.name.removesuffix(".gz").endswith("idx3-ubyte") and any(word in path.name for word in words):
            return Place("idx", _with_labels(path))
    for folder in (root, root / "cifar-10-batches-bin", root / "cifar-100-binary"):
        for pattern in ("data_batch_*.bin" if split == "train" else "test_batch.bin", f"{split}.bin"):
            if found := tuple(sorted(folder.glob(pattern))):
                return Place("cifar", found)
    singles: tuple[tuple[str, Kind], ...] = ((f"{split}_32x32.mat", "mat"), (f"{split}.npy", "npy"))
    if split == "train":
        singles = (*singles, ("300K_random_images.npy", "npy"), ("tiny_images.bin", "tiny_images"))
    return next((Place(kind, (root / name,)) for name, kind in singles if (root / name).is_file()), None)


def present(path: Path) -> bool:
    """Whether there is such a file or folder; not being allowed to know is an error."""
    try:
        return path.exists()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def pictures(root: Path) -> Place | None:
    """A folder that holds images itself, or in folders of classes directly below it, whatever the split."""
    try:
        below = [root, *sorted(folder for folder in root.iterdir() if folder.is_dir())] if root.is_dir() else []
        found = any(path.suffix.lower() in PICTURES for folder in below for path in folder.iterdir())
    except OSError as error:
        raise DataError(f"cannot read {root}: {error.strerror or error}") from None
    return Place("folder", (root,)) if found else None


def _with_labels(images: Path) -> tuple[Path, ...]:
    name = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    labels = (images.with_name(name), images.with_name(f"{name}.gz"))
    return (images, *(path for path in labels if path.is_file()))[:2]
