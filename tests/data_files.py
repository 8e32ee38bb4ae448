"""Writes small image sets in the formats that certood reads, for the tests of `certood.data`."""

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from certood.data.views import Pixels


def pictures(count: int, *, colour: bool = False, side: int = 28, seed: int = 0) -> Pixels:
    """Random images, [N, side, side] or [N, side, side, 3]."""
    shape = (count, side, side, 3) if colour else (count, side, side)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def png(image: Pixels) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray(image).save(file, "PNG")
        return file.getvalue()


def write_parquet(path: Path, images: list[bytes], labels: list[int] | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, object] = {"image": [{"bytes": data, "path": None} for data in images]}
    if labels is not None:
        columns["label"] = labels
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_idx(path: Path, array: Pixels) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    data = header + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_folder(root: Path, images: Pixels, labels: list[int] | None) -> None:
    """Names that sort in the order of the images within each class."""
    for index, image in enumerate(images):
        folder = root if labels is None else root / f"class{labels[index]}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index:04d}.png").write_bytes(png(image))


def write_tar(path: Path, images: Pixels, labels: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for index, image in enumerate(images):
            for extension, data in (("png", png(image)), ("cls", str(labels[index]).encode())):
                member = tarfile.TarInfo(f"{index:04d}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def write_cifar(path: Path, images: Pixels, labels: list[int], coarse: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    heads = [[label // 5, label] if coarse else [label] for label in labels]
    path.write_bytes(np.concatenate([np.array(heads, np.uint8), planes], axis=1).tobytes())
