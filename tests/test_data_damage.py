"""Damaged, missing and forbidden files: one line that names the file, and nothing else on the screen."""

import gzip
import io
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from data_files import pictures, png, write_idx, write_parquet
from PIL import Image

from certood.data import encoded, formats
from certood.data.places import Place
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


# ---- files that would do harm ----------------------------------------------------------------------------------------


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """Half a gigabyte of zeros in half a megabyte, and a header that promises four gigabytes."""
    path = tmp_path / "train-images-idx3-ubyte.gz"
    shape = b"".join(length.to_bytes(4, "big") for length in (2**20, 64, 64))
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" + shape + bytes(2**24), 1))
    tracemalloc.start()
    with pytest.raises(DataError, match="asks for 4294967296 bytes, and fewer are there"):
        formats.idx([path])
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LARGE", 2**22)
    path = tmp_path / "train.npz"
    np.savez_compressed(path, images=np.zeros((2**12, 64, 64), np.uint8))
    with pytest.raises(DataError, match=r"images\.npy would take 16777216 bytes, and has"):
        formats.npz(path)
    np.savez_compressed(path, images=np.random.default_rng(0).integers(0, 256, (2**11, 64, 64), np.uint8))
    assert formats.npz(path).length == 2**11


def test_an_array_that_says_it_is_larger_than_its_file(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (100000, 1000, 1000), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(100))
    with pytest.raises(DataError, match=r"images\.npy would take 100000000000 bytes"):
        formats.npz(path)


def test_a_picture_bomb_is_not_decoded() -> None:
    """A PNG of 20,000 x 20,000 pixels in 50 kilobytes; refused for its header alone."""
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    for data in (bomb.getvalue(), bomb.getvalue()[:100]):
        with pytest.raises(DataError, match="cannot be decoded"):
            encoded._pixels(data, "somewhere")


def test_no_reader_starts_another_program() -> None:
    """PIL would hand EPS to Ghostscript."""
    script = io.BytesIO()
    Image.new("RGB", (8, 8)).save(script, "EPS")
    with pytest.raises(DataError, match="cannot identify image file"):
        encoded._pixels(script.getvalue(), "somewhere")


def test_a_path_in_a_parquet_file_is_not_followed(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    Image.new("L", (8, 8)).save(tmp_path / "private.png")
    (tmp_path / "set").mkdir()
    for name in (str(tmp_path / "private.png"), "../private.png"):
        table = pyarrow.table({"image": [{"bytes": None, "path": name}], "label": [0]})
        pyarrow.parquet.write_table(table, tmp_path / "set" / "train.parquet")
        with pytest.raises(DataError, match="it is not followed"):
            encoded.from_files(Place("parquet", (tmp_path / "set" / "train.parquet",))).read(np.arange(1))
