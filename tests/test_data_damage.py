"""Damaged, missing and forbidden files: one line that names the file, and nothing else on the screen."""

import os
from pathlib import Path

import numpy as np
import pytest
from data_files import pictures, png, write_idx, write_parquet

from certood.data.sources import ImageSet, load
from certood.errors import DataError

GREY = pictures(12)


@pytest.fixture(autouse=True)
def _cache_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `datasets` keeps of these files goes away with the test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def read(name: str, folder: Path | None, split: str = "test") -> ImageSet:
    return load(name, split, folder=folder, channels=1, size=28)


def _damaged(root: Path) -> dict[str, str]:
    """Writes damaged sets below `root`; gives what the message about each must contain."""
    whole = png(GREY[0])
    write_parquet(root / "cut_png" / "test.parquet", [whole, whole[: len(whole) // 2]], [0, 1])
    write_parquet(root / "no_png" / "test.parquet", [b"hello"], [0])
    write_parquet(root / "blank_record" / "test.parquet", [b""], [0])
    write_parquet(root / "no_images" / "test.parquet", [], [])
    write_parquet(root / "cut_parquet" / "test.parquet", [whole] * 9, [0] * 9)
    cut = (root / "cut_parquet" / "test.parquet").read_bytes()
    (root / "cut_parquet" / "test.parquet").write_bytes(cut[:200])
    write_parquet(root / "mnist" / "test.parquet", [whole], [10])
    write_idx(root / "cut_idx" / "t10k-images-idx3-ubyte", GREY)
    data = (root / "cut_idx" / "t10k-images-idx3-ubyte").read_bytes()
    (root / "cut_idx" / "t10k-images-idx3-ubyte").write_bytes(data[:-7])
    write_idx(root / "cut_gz" / "t10k-images-idx3-ubyte.gz", GREY)
    data = (root / "cut_gz" / "t10k-images-idx3-ubyte.gz").read_bytes()
    (root / "cut_gz" / "t10k-images-idx3-ubyte.gz").write_bytes(data[:-20])
    write_idx(root / "short_labels" / "t10k-images-idx3-ubyte", GREY)
    write_idx(root / "short_labels" / "t10k-labels-idx1-ubyte", np.zeros(5, np.uint8))
    for name in ("no_idx", "float_npz", "five_channels", "no_npz", "no_cifar", "no_mat", "empty_folder", "tiny_images"):
        (root / name).mkdir()
    (root / "no_idx" / "t10k-images-idx3-ubyte").write_bytes(b"\x89PNG")
    np.savez(root / "float_npz" / "test.npz", images=GREY / 255)
    np.savez(root / "five_channels" / "test.npz", images=np.zeros((2, 5, 8, 8), np.uint8))
    (root / "no_npz" / "test.npz").write_bytes(b"PK\3\4 not a zip")
    (root / "no_cifar" / "test_batch.bin").write_bytes(b"\0" * 3072)
    (root / "no_mat" / "test_32x32.mat").write_bytes(b"not matlab " * 30)
    (root / "empty_folder" / "test").mkdir()
    (root / "no_tar").mkdir()
    (root / "no_tar" / "test.tar").write_bytes(b"not a tar file" * 100)
    return {
        "cut_png": "test.parquet, image 1: cannot be decoded",
        "no_png": "image 0: cannot be decoded",
        "blank_record": "image 0: empty record",
        "no_images": "holds no images",
        "cut_parquet": "not readable as parquet",
        "mnist": "label 10 where there are 10 classes",
        "cut_idx": "download it again",
        "cut_gz": "damaged gzip file",
        "short_labels": "12 images but 5 labels",
        "no_idx": "not an idx file",
        "float_npz": "save them as uint8",
        "five_channels": "expected 1 (grey) or 3 (RGB) channels",
        "no_npz": "not a readable npz file",
        "no_cifar": "no multiple of 3073",
        "no_mat": "not SVHN's .mat file",
        "empty_folder": "no image in this folder",
        "no_tar": "not readable as webdataset",
    }


def test_damaged_files_are_named_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, expected in _damaged(tmp_path).items():
        with pytest.raises(DataError) as caught:
            read(name, tmp_path)
        message = str(caught.value)
        assert expected in message, name
        assert "\n" not in message, name
        assert name in message
        assert caught.value.__cause__ is None
    out, err = capfd.readouterr()
    assert not out, "nothing but the error may reach the screen"
    assert not err, "nothing but the error may reach the screen"


def test_left_out_list_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "tiny_images.bin").write_bytes(pictures(12, colour=True, side=32).tobytes())
    (tmp_path / "left_out.txt").write_text("12")
    with pytest.raises(DataError, match="outside the 12"):
        read(str(tmp_path / "tiny_images.bin"), None, "train")
    (tmp_path / "left_out.txt").write_text("twelve")
    with pytest.raises(DataError, match="not a list of whole numbers"):
        read(str(tmp_path / "tiny_images.bin"), None, "train")
    (tmp_path / "tiny_images.bin").write_bytes(b"\0" * 3071)
    with pytest.raises(DataError, match="no multiple of 3072"):
        read(str(tmp_path / "tiny_images.bin"), None, "train")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    write_idx(tmp_path / "own" / "t10k-images-idx3-ubyte", GREY)
    (tmp_path / "own" / "t10k-images-idx3-ubyte").chmod(0)
    with pytest.raises(DataError, match="cannot read"):
        read("own", tmp_path)


def test_no_room_for_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "own" / "test.parquet", [png(image) for image in GREY], None)
    (tmp_path / "file").write_text("where a folder should be")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "file" / "cache")
    with pytest.raises(DataError, match="set HF_HOME to another folder"):
        read("own", tmp_path)
