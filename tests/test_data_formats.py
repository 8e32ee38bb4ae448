"""Every file format: written by the test, read back through `load`, pixel for pixel."""

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from data_files import pictures, png, write_cifar, write_folder, write_idx, write_parquet, write_tar
from hypothesis import given
from hypothesis import strategies as st

from certood.data import encoded, formats
from certood.data.entries import find
from certood.data.sources import ImageSet, load
from certood.errors import DataError

GREY, COLOUR = pictures(12), pictures(12, colour=True, side=32)
LABELS = [index % 3 for index in range(12)]


@pytest.fixture(autouse=True)
def _cache_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `datasets` keeps of these files goes away with the test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def read(name: str, folder: Path | None, split: str = "test", *, colour: bool = False) -> ImageSet:
    return load(name, split, folder=folder, channels=3 if colour else 1, size=32 if colour else 28)


def check(found: ImageSet, images: np.ndarray, labels: list[int] | None, classes: int) -> None:
    everything = np.arange(len(found))
    expected = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images[:, None]
    np.testing.assert_array_equal(found.images(everything), expected)
    np.testing.assert_array_equal(found.labels(everything), labels or [-1] * len(images))
    assert found.classes == classes
    assert len(found.class_names) == classes
    assert len(found.digest) == 64


def test_parquet(tmp_path: Path) -> None:
    write_parquet(tmp_path / "own" / "test.parquet", [png(image) for image in GREY], LABELS)
    check(read("own", tmp_path), GREY, LABELS, 3)
    check(read(str(tmp_path / "own" / "test.parquet"), None), GREY, LABELS, 3)
    assert read(str(tmp_path / "own" / "test.parquet"), None).name == "own"


def test_parquet_in_shards_without_labels(tmp_path: Path) -> None:
    for shard, part in enumerate((COLOUR[:5], COLOUR[5:])):
        write_parquet(tmp_path / "own" / f"test-0000{shard}-of-00002.parquet", [png(image) for image in part], None)
    check(read("own", tmp_path, colour=True), COLOUR, None, 0)


@pytest.mark.parametrize("labelled", [True, False])
def test_folder(tmp_path: Path, labelled: bool) -> None:
    write_folder(tmp_path / "own" / "test", GREY, LABELS if labelled else None)
    order = np.argsort(LABELS, kind="stable") if labelled else np.arange(12)
    found = read("own", tmp_path)
    check(found, GREY[order], sorted(LABELS) if labelled else None, 3 if labelled else 0)
    assert found.class_names == (("class0", "class1", "class2") if labelled else ())
    whole = load(str(tmp_path / "own" / "test"), "train", folder=None, channels=1, size=28)
    assert len(whole) == 12  # a folder of images without splits is taken whole


def test_webdataset(tmp_path: Path) -> None:
    write_tar(tmp_path / "own" / "test-000.tar", COLOUR[:7], LABELS[:7])
    write_tar(tmp_path / "own" / "test-001.tar", COLOUR[7:], LABELS[7:])
    check(read("own", tmp_path, colour=True), COLOUR, LABELS, 3)


@pytest.mark.parametrize("layout", ["NHW", "NHWC", "NCHW"])
def test_npz(tmp_path: Path, layout: str) -> None:
    (tmp_path / "own").mkdir()
    images = {"NHW": GREY, "NHWC": COLOUR, "NCHW": COLOUR.transpose(0, 3, 1, 2)}[layout]
    np.savez(tmp_path / "own" / "test.npz", images=images, labels=np.array(LABELS))
    colour = layout != "NHW"
    check(read("own", tmp_path, colour=colour), COLOUR if colour else GREY, LABELS, 3)


def test_npy_of_random_images(tmp_path: Path) -> None:
    (tmp_path / "random_images_300k").mkdir()
    np.save(tmp_path / "random_images_300k" / "300K_random_images.npy", COLOUR)
    check(read("random_images_300k", tmp_path, "train", colour=True), COLOUR, None, 0)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_idx(tmp_path: Path, suffix: str, split: str) -> None:
    stem = {"train": "train", "test": "t10k"}[split]
    write_idx(tmp_path / "fashion_mnist" / f"{stem}-images-idx3-ubyte{suffix}", GREY)
    write_idx(tmp_path / "fashion_mnist" / f"{stem}-labels-idx1-ubyte{suffix}", np.array(LABELS, np.uint8))
    check(read("fashion_mnist", tmp_path, split), GREY, LABELS, 10)
    check(read(str(tmp_path / "fashion_mnist"), None, split), GREY, LABELS, 3)  # as Debian's package lies on the disk


def test_emnist_is_transposed_and_its_labels_begin_at_one(tmp_path: Path) -> None:
    images, labels = pictures(26), np.arange(1, 27, dtype=np.uint8)
    write_idx(tmp_path / "emnist_letters" / "emnist-letters-test-images-idx3-ubyte.gz", images.swapaxes(1, 2))
    write_idx(tmp_path / "emnist_letters" / "emnist-letters-test-labels-idx1-ubyte.gz", labels)
    check(read("emnist_letters", tmp_path), images, list(range(26)), 26)


def test_cifar_binary(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10" / "data_batch_1.bin", COLOUR[:6], LABELS[:6], coarse=False)
    write_cifar(tmp_path / "cifar10" / "data_batch_2.bin", COLOUR[6:], LABELS[6:], coarse=False)
    check(read("cifar10", tmp_path, "train", colour=True), COLOUR, LABELS, 10)
    write_cifar(tmp_path / "cifar100" / "cifar-100-binary" / "test.bin", COLOUR, LABELS, coarse=True)
    check(read("cifar100", tmp_path, colour=True), COLOUR, LABELS, 100)


def test_svhn_mat_calls_zero_ten(tmp_path: Path) -> None:
    (tmp_path / "svhn").mkdir()
    labels = np.array([label or 10 for label in LABELS], np.uint8)[:, None]
    scipy.io.savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": COLOUR.transpose(1, 2, 3, 0), "y": labels})
    check(read("svhn", tmp_path, colour=True), COLOUR, LABELS, 10)


def test_tiny_images_are_fortran_ordered_and_cifar_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "tiny_images").mkdir()
    (tmp_path / "tiny_images" / "tiny_images.bin").write_bytes(b"".join(image.tobytes("F") for image in COLOUR))
    with pytest.raises(DataError, match=r"no list of the CIFAR images.*left_out\.txt"):
        read("tiny_images", tmp_path, "train", colour=True)
    (tmp_path / "tiny_images" / "left_out.txt").write_text("")
    check(read("tiny_images", tmp_path, "train", colour=True), COLOUR, None, 0)
    whole = read("tiny_images", tmp_path, "train", colour=True).digest
    (tmp_path / "tiny_images" / "80mn_cifar_idxs.txt").write_text("1\n4\n5\n")  # counted from 1: images 0, 3, 4
    np.save(tmp_path / "tiny_images" / "left_out.npy", np.array([11, 3]))  # counted from 0
    found = read("tiny_images", tmp_path, "train", colour=True)
    check(found, COLOUR[[1, 2, 5, 6, 7, 8, 9, 10]], None, 0)
    assert found.digest != whole


@given(total=st.integers(1, 60), data=st.data())
def test_skipping_what_is_left_out(total: int, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(0, total - 1)))
    kept = [index for index in range(total) if index not in gone]  # the list that `skip` does without
    found = formats.skip(np.arange(len(kept)), np.array(sorted(gone), np.int64))
    np.testing.assert_array_equal(found, np.array(kept, np.int64))


def test_columns_as_the_hub_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CIFAR-100 on the hub: img, fine_label, coarse_label. The hub itself is replaced."""
    import datasets
    import huggingface_hub

    names = [f"thing{index}" for index in range(100)]
    features = datasets.Features({"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=names)})
    rows = {"img": [{"bytes": png(image), "path": None} for image in COLOUR], "fine_label": LABELS}
    asked: list[object] = []

    def load_dataset(*arguments: object, **options: object) -> datasets.Dataset:
        asked.append((*arguments, options))
        return datasets.Dataset.from_dict(rows, features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    found = read("cifar100", tmp_path, colour=True)
    check(found, COLOUR, LABELS, 100)
    assert found.class_names == tuple(names)
    assert asked == [("uoft-cs/cifar100", None, {"split": "test"})]


def test_no_hub_is_one_line_and_restores_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    import huggingface_hub

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no network in a test")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    before = datasets.logging.get_verbosity(), datasets.is_progress_bar_enabled(), datasets.config.HF_HUB_OFFLINE
    with pytest.raises(DataError, match=r"cifar100/test needs a data folder.*hub.*cannot be reached"):
        read("cifar100", None)
    after = datasets.logging.get_verbosity(), datasets.is_progress_bar_enabled(), datasets.config.HF_HUB_OFFLINE
    assert before == after
    entry = find("cifar100")
    assert entry is not None
    assert encoded.from_hub(entry, "uoft-cs/cifar100", "test") is None


def test_modes_of_pictures(tmp_path: Path) -> None:
    """Palettes, transparency, 16 bits, one bit: all become grey or RGB; any mixture of sizes becomes one form."""
    from PIL import Image

    root = tmp_path / "own" / "test"
    root.mkdir(parents=True)
    plain = Image.fromarray(COLOUR[0])
    plain.save(root / "a.png")
    plain.convert("RGBA").save(root / "b.png")
    plain.convert("P").save(root / "c.png", transparency=b"\0" * 8)
    plain.convert("1").save(root / "d.png")
    Image.fromarray(GREY[0].astype(np.uint16) << 8).save(root / "e.png")
    plain.resize((90, 50)).save(root / "f.jpg")
    found = read("own", tmp_path, colour=True)
    images = found.images(np.arange(6))
    assert images.shape == (6, 3, 32, 32)
    np.testing.assert_array_equal(images[1], images[0])
    np.testing.assert_array_equal(images[4][:, 2:30, 2:30], np.stack([GREY[0]] * 3))


def test_large_sets_are_decoded_batch_by_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(40, colour=True, side=64)  # 12 kB each as PNG: decoded by threads
    write_parquet(tmp_path / "own" / "test.parquet", [png(image) for image in images], [0, 1] * 20)
    chosen = np.array([39, 0, 7, 7, *range(20)])
    at_once = read("own", tmp_path, colour=True).images(chosen)
    monkeypatch.setattr("certood.data.adapting.DECODED_AT_ONCE", 0)
    some = load("own", "test", folder=tmp_path, channels=3, size=64)
    np.testing.assert_array_equal(some.images(chosen), images[chosen].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(read("own", tmp_path, colour=True).images(chosen), at_once)
