"""Compressed images by way of Hugging Face `datasets`: parquet, image folders, webdataset shards and the hub.

`datasets` finds, downloads, caches (in its usual place, never beside the data) and memory-maps; certood takes the
compressed bytes from it and decodes them with PIL, in whatever batch is asked for.
"""

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from certood.data.entries import Entry
from certood.data.formats import LARGE, Indices, Source, digest_of
from certood.data.places import PICTURES, Place
from certood.data.views import Pixels
from certood.errors import CorruptRecord, DataError

# In this order; cls is webdataset's, fine_label CIFAR-100's.
LABELS = ("label", "labels", "fine_label", "cls", "target")
# PIL's readers of what `places.PICTURES` names, and no reader that would start another program, as that of EPS does.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MOST_PIXELS = 2**26  # of one image, 200 MB; a larger one is a bomb
# Seconds for the one question whether the hub answers: its client alone would retry for 20 s and more.
HUB_PATIENCE = 3.0

# Threads pay only where decoding one image is long against handing the GIL over. Measured on 2 cores: 60,000 MNIST PNGs
# of 300 bytes 1.4 s serial, 1.9 s with 2 threads; 256x256 JPEGs of 10 kB 0.53 ms serial, 0.27 ms with 2.
THREADED = 4096  # bytes an image


def from_files(place: Place) -> Source:
    """The source of a parquet file (or several), an image folder or webdataset shards."""
    files: Sequence[Path] = place.paths
    if place.kind == "folder":
        files = sorted(path for path in place.paths[0].rglob("*") if path.suffix.lower() in PICTURES)
        if not files:
            raise DataError(f"{place.paths[0]}: no image in this folder ({', '.join(PICTURES)})")
    where = place.where
    digest = _folder_digest(place.paths[0], files) if place.kind == "folder" else digest_of(files)
    builder = {"folder": "imagefolder"}.get(place.kind, place.kind)
    with _quiet() as datasets:
        try:
            # Named as one split "whole": `datasets` would otherwise read meaning into folders called train or test.
            found = {"data_files": {"whole": [str(path) for path in files]}}
            options: dict[str, Any] = {}
            if place.kind == "folder":
                options = {"drop_labels": len({path.parent for path in files}) == 1}
            if place.kind == "parquet":
                options = {"batch_size": 1000}  # by default a row group's, which in an empty file is 0 and refused
            dataset = datasets.load_dataset(builder, split="whole", **found, **options)
        except Exception as error:
            # Any reader below `datasets` may fail in its own way (pyarrow, tarfile, fsspec); all mean: not readable.
            if "corresponds to no data" in str(error):
                raise DataError(f"{where}: holds no images") from None
            if getattr(error.__cause__ or error, "errno", None):  # the operating system refused, not the format
                cache = datasets.config.HF_DATASETS_CACHE
                advice = f"`datasets` keeps a copy in {cache}: is there space, or set HF_HOME to another folder"
                raise DataError(f"{where}: cannot be read ({_reason(error)}); {advice}") from None
            raise DataError(
                f"{where}: not readable as {place.kind} ({_reason(error)}); write or download it again"
            ) from None
    return _source(dataset, where, digest, own_paths=place.kind == "folder")


def from_hub(entry: Entry, hub: str, split: str) -> Source | None:
    """The source of a set on the hub (or in its cache), None where neither can be reached."""
    with _quiet() as datasets:
        import huggingface_hub

        online = not datasets.config.HF_HUB_OFFLINE
        if online:
            try:
                huggingface_hub.HfApi().dataset_info(hub, timeout=HUB_PATIENCE)
            except Exception:
                online = False  # no network, a proxy that says no, the set gone: the cache may still have it
        before, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, not online
        try:
            dataset = datasets.load_dataset(hub, entry.hub_config, split=dict(entry.hub_splits)[split])
        except Exception as error:
            if not online:
                return None
            raise DataError(f"{entry.name}: the hub's {hub} cannot be read ({_reason(error)})") from None
        finally:
            datasets.config.HF_HUB_OFFLINE = before
    return _source(dataset, f"hub:{hub}", None)


def _source(dataset: Any, where: str, digest: str | None, own_paths: bool = False) -> Source:
    """`own_paths`: records name the files that certood found itself."""
    import datasets

    features = dataset.features
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    images += [name for name in ("image", "img", "png", "jpg", "jpeg") if name in features and name not in images]
    if not images:
        raise DataError(f"{where}: no column of images; found {', '.join(features)}, expected `image`")
    column = images[0]
    try:
        dataset = dataset.cast_column(column, datasets.Image(decode=False))
    except Exception as error:
        raise DataError(f"{where}: column {column!r} holds no encoded images ({_reason(error)})") from None
    labels: Indices | None = None
    class_names: tuple[str, ...] = ()
    if label := next((name for name in LABELS if name in features), None):
        labels, class_names = _labels(dataset, label, where)

    def encoded(indices: Indices) -> list[bytes]:
        records = dataset[indices][column]
        named = [f"{where}, image {index}" for index in indices]
        return [_bytes(record, name, own_paths) for record, name in zip(records, named, strict=True)]

    def read(indices: Indices) -> list[Pixels]:
        return decode(encoded(indices), [f"{where}, image {index}" for index in indices])

    digest = digest or _content_digest(dataset, encoded)
    return Source(len(dataset), read, digest, where, labels, class_names, encoded, slow=True)


def _labels(dataset: Any, column: str, where: str) -> tuple[Indices | None, tuple[str, ...]]:
    values = dataset.select_columns([column]).with_format("numpy")[:][column] if len(dataset) else np.empty(0, np.int64)
    values = np.asarray(values)
    if values.dtype.kind in "US":
        names, values = np.unique(values, return_inverse=True)
        return values.astype(np.int64), tuple(str(name) for name in names)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(f"{where}: column {column!r} holds {values.dtype}; labels must be whole numbers, one an image")
    if len(values) and values.max() < 0:  # the hub's convention for a split whose labels are withheld
        return None, ()
    return values.astype(np.int64), tuple(getattr(dataset.features[column], "names", None) or ())


def decode(data: list[bytes], where: list[str]) -> list[Pixels]:
    if len(data) < 16 or sum(map(len, data)) < THREADED * len(data):
        return [_pixels(*item) for item in zip(data, where, strict=True)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_pixels, data, where))


def _pixels(data: bytes, where: str) -> Pixels:
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:  # before it is decoded
                raise ValueError(f"{image.width}x{image.height} pixels")
            if "exif" in image.info:
                image = ImageOps.exif_transpose(image)
            if image.mode.startswith("I;16"):
                return (np.asarray(image) >> 8).astype(np.uint8)
            if image.mode not in ("L", "RGB"):
                # By way of RGBA, since PIL warns about palettes with transparency otherwise.
                image = image.convert("L") if image.mode in ("1", "LA") else image.convert("RGBA").convert("RGB")
            return np.asarray(image)
    except Exception as error:  # each of PIL's readers fails in ways of its own on a damaged image
        raise CorruptRecord(f"{where}: cannot be decoded ({_reason(error)}); replace or remove it") from None


def _bytes(record: dict[str, Any] | None, where: str, own_paths: bool) -> bytes:
    """A path that stands in a file is followed only into the cache of `datasets`, where the hub's images are."""
    if record and record["bytes"]:
        return bytes(record["bytes"])
    if not record or not record["path"]:
        raise CorruptRecord(f"{where}: empty record; replace or remove it")
    if not own_paths:
        from datasets import config

        path = Path(os.path.abspath(record["path"]))  # noqa: PTH100  # the cache itself is made of links
        if not path.is_relative_to(config.HF_CACHE_HOME):
            raise DataError(f"{where}: names a file, {record['path']}, instead of holding an image; it is not followed")
    try:
        return Path(record["path"]).read_bytes()
    except OSError as error:
        raise DataError(f"{where}: cannot read {record['path']} ({error.strerror})") from None


def _folder_digest(root: Path, files: Sequence[Path]) -> str:
    """sha256 over relative names and contents; over names, sizes and times where all together exceed 1 GiB."""
    digest = hashlib.sha256()
    large = sum(path.stat().st_size for path in files) > LARGE
    for path in files:
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(str(path.stat().st_mtime_ns).encode() if large else path.read_bytes())
    return digest.hexdigest()


def _content_digest(dataset: Any, encoded: Any) -> str:
    """For the hub: sha256 over the compressed images; over its first and last thousand and the number above 1 GiB."""
    digest = hashlib.sha256(str(len(dataset)).encode())
    blocks = [np.arange(start, min(start + 1000, len(dataset))) for start in range(0, len(dataset), 1000)]
    for block in blocks if dataset.data.nbytes <= LARGE else (blocks[0], blocks[-1]):
        for data in encoded(block):
            digest.update(data)
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[Any]:
    """`datasets` without progress bars and log lines on somebody's screen; the settings found are put back."""
    import datasets

    level, bars = datasets.logging.get_verbosity(), datasets.is_progress_bar_enabled()
    datasets.logging.set_verbosity(50)
    datasets.disable_progress_bars()
    try:
        yield datasets
    finally:
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def _reason(error: BaseException) -> str:
    root = error.__cause__ or error  # `datasets` wraps the error that says what is wrong
    return (str(root).strip() or type(root).__name__).splitlines()[0][:160]
