"""Noise, the demo set, the catalogue, and real data where it is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import pictures, png, write_folder, write_idx, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

from certood.data import demo
from certood.data.catalogue import catalogue, prepare, whereabouts
from certood.data.entries import known
from certood.data.sources import ImageSet, load
from certood.errors import DataError

REAL = Path(__file__).parents[2] / "shared" / "data"
NOISE = ["uniform_noise", "smooth_noise", "single_colours", "permuted_pixels:demo_letters"]


@pytest.fixture(autouse=True)
def _cache_elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `datasets` keeps of these files goes away with the test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def small(name: str, split: str = "test", *, folder: Path | None = None, limit: int | None = None) -> ImageSet:
    return load(name, split, folder=folder, channels=1, size=28, limit=limit)


@pytest.fixture(scope="module")
def noise_sets() -> dict[str, ImageSet]:
    return {name: small(name, limit=60) for name in NOISE}


@settings(max_examples=30)
@given(name=st.sampled_from(NOISE), indices=st.lists(st.integers(0, 59), max_size=12))
def test_noise_does_not_depend_on_the_batch(noise_sets: dict[str, ImageSet], name: str, indices: list[int]) -> None:
    found = noise_sets[name].images(np.array(indices, np.int64))
    assert found.shape == (len(indices), 1, 28, 28)
    for image, index in zip(found, indices, strict=True):
        np.testing.assert_array_equal(image, noise_sets[name].images(np.array([index]))[0])


def test_what_the_noise_looks_like() -> None:
    several = np.arange(200)
    uniform = load("uniform_noise", "test", folder=None, channels=3, size=32).images(several)
    assert uniform.dtype == np.float32
    assert abs(uniform.mean() - 0.5) < 0.005
    assert abs(uniform.std() - 12**-0.5) < 0.005
    smooth = load("smooth_noise", "test", folder=None, channels=3, size=32).images(several)
    np.testing.assert_array_equal(smooth.min(axis=(1, 2, 3)), 0)
    np.testing.assert_array_equal(smooth.max(axis=(1, 2, 3)), 1)
    assert np.abs(np.diff(smooth)).mean() < 0.4 * np.abs(np.diff(uniform)).mean()
    single = load("single_colours", "test", folder=None, channels=3, size=32).images(several)
    assert (single == single[:, :, :1, :1]).all()
    assert len(np.unique(single[:, :, 0, 0])) > 590
    assert not np.array_equal(
        uniform[:8], load("uniform_noise", "train", folder=None, channels=3, size=32).images(several[:8])
    )


def test_permuted_pixels_keep_the_pixels_of_each_image() -> None:
    photos = load("demo_photos", "test", folder=None, channels=3, size=32, limit=9)
    permuted = load("permuted_pixels:demo_photos", "test", folder=None, channels=3, size=32, limit=9)
    before, after = (found.images(np.arange(9)).reshape(9, 3, -1) for found in (photos, permuted))
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(*(columns[:, np.lexsort(columns)] for columns in (left, right)))
        assert not np.array_equal(left, right)
    assert permuted.classes == 0
    assert permuted.digest != photos.digest


def test_demo_digits_are_balanced_and_disjoint() -> None:
    train, test = small("demo_digits", "train"), small("demo_digits", "test")
    assert (len(train), len(test), train.classes) == (4000, 1000, 10)
    for found, each in ((train, 400), (test, 100)):
        np.testing.assert_array_equal(np.bincount(found.labels(np.arange(len(found)))), [each] * 10)
    shown = [{image.tobytes() for image in found.images(np.arange(len(found)))} for found in (train, test)]
    assert not shown[0] & shown[1]
    # What was published with these digits stays comparable only as long as this does not change.
    assert demo.source("demo_digits", "test").digest.startswith("a14cd5361eb4")


def test_demo_photos_and_letters_do_not_depend_on_the_limit() -> None:
    for name in ("demo_photos", "demo_letters"):
        source = demo.source(name, "test")
        together = source.read(np.array([5, 900, 5]))
        np.testing.assert_array_equal(together[0], together[2])
        np.testing.assert_array_equal(together[1], source.read(np.array([900]))[0])
        assert source.digest == demo.source(name, "test").digest
    assert demo.source("demo_photos", "train").digest != demo.source("demo_photos", "test").digest
    assert not set(demo.PHOTOS["train"]) & set(demo.PHOTOS["test"])


def test_demo_letters_are_made_like_mnist() -> None:
    letters = small("demo_letters")
    images = letters.images(np.arange(len(letters)))[:, 0]
    np.testing.assert_array_equal(np.bincount(letters.labels(np.arange(len(letters)))), [40] * 26)
    assert len(letters) == known("demo_letters").sizes["test"]
    heights, widths = (np.array([np.ptp(np.flatnonzero(image.any(axis))) + 1 for image in images]) for axis in (1, 0))
    assert np.maximum(heights, widths).max() <= 20
    assert np.maximum(heights, widths).min() >= 18
    mass = images.astype(float)
    rows = (mass.sum(2) * np.arange(28)).sum(1) / mass.sum((1, 2))
    assert np.abs(rows - 13.5).max() < 2.1  # half a pixel of rounding, one of shift, and the edge


def test_a_limit_takes_from_all_classes(tmp_path: Path) -> None:
    write_folder(tmp_path / "own" / "test", pictures(200), [index // 20 for index in range(200)])
    whole, some = small("own", folder=tmp_path), small("own", folder=tmp_path, limit=50)
    assert len(some) == 50
    assert len(np.unique(some.labels(np.arange(50)))) == 10
    everything = {image.tobytes(): label for image, label in zip(*_all(whole), strict=True)}
    assert all(everything[image.tobytes()] == label for image, label in zip(*_all(some), strict=True))
    assert some.digest != whole.digest
    assert len(small("own", folder=tmp_path, limit=999)) == 200


def _all(found: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    everything = np.arange(len(found))
    return found.images(everything), found.labels(everything)


def test_the_digest_tells_forms_and_contents_apart(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a" / "test.parquet", [png(image) for image in pictures(4)], [0, 1, 0, 1])
    write_parquet(tmp_path / "b" / "test.parquet", [png(image) for image in pictures(4, seed=1)], [0, 1, 0, 1])
    forms = [("a", 1, 28, 0), ("b", 1, 28, 0), ("a", 3, 28, 0), ("a", 1, 32, 0), ("a", 1, 28, 4)]
    digests = [load(n, "test", folder=tmp_path, channels=c, size=s, margin=m).digest for n, c, s, m in forms]
    assert len(set(digests)) == len(forms)
    assert small("a", folder=tmp_path).digest == digests[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"name": "cifar11"}, "did you mean cifar10"),
        ({"name": "Fashion-MNIST"}, "did you mean fashion_mnist"),
        ({"name": "no such thing"}, "`certood data list` names all sets"),
        ({"name": ""}, "there is no image set called ''"),
        ({"name": "omniglot", "split": "train"}, "omniglot has no train split, only test"),
        ({"name": "mnist", "split": "valid"}, "no split 'valid'"),
        ({"name": "omniglot"}, "needs a data folder"),
        ({"name": "demo_digits", "channels": 2}, "channels are 1 or 3"),
        ({"name": "demo_digits", "limit": 0}, "a limit of 0"),
        ({"name": "mnist", "folder": Path("/no/such/folder")}, "does not exist"),
        ({"name": "mnist", "folder": Path(__file__)}, "is a file"),
        ({"name": str(Path(__file__))}, "does not read .py files"),
        ({"name": str(Path(__file__).parent)}, "no images in this folder"),
        ({"name": "permuted_pixels:cifar11"}, "did you mean cifar10"),
    ],
)
def test_errors_teach(arguments: dict[str, object], expected: str) -> None:
    defaults: dict[str, object] = {"split": "test", "folder": None, "channels": 1, "size": 28}
    with pytest.raises(DataError) as caught:
        load(**(defaults | arguments))  # type: ignore[arg-type]
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_index_that_is_not_there() -> None:
    found = small("demo_digits")
    for wrong in (-1, 1000):
        with pytest.raises(DataError, match=f"no image {wrong}"):
            found.images(np.array([wrong]))


def test_whereabouts(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", pictures(2))
    found = {entry.name: whereabouts(entry, tmp_path) for entry in catalogue()}
    assert found["mnist"] == "local"
    assert whereabouts(known("mnist"), tmp_path, "train") == "hub"
    assert (found["cifar10"], found["notmnist"], found["demo_digits"]) == ("hub", "missing", "generated")
    assert len(found) == len(catalogue()), "names are unique"


def test_prepare_writes_what_loading_gives(tmp_path: Path) -> None:
    images = pictures(26)
    write_idx(tmp_path / "in" / "emnist_letters" / "emnist-letters-test-images-idx3-ubyte", images)
    write_idx(
        tmp_path / "in" / "emnist_letters" / "emnist-letters-test-labels-idx1-ubyte", np.arange(1, 27, dtype=np.uint8)
    )
    steps: list[tuple[str, int, int]] = []
    written = prepare("demo_letters", tmp_path / "out", None, lambda *step: steps.append(step))
    assert written == (tmp_path / "out" / "demo_letters" / "test.parquet",)
    assert steps == [("test", 1000, 1040), ("test", 1040, 1040)]
    copy = tmp_path / "out" / "emnist_letters" / "test.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("certood.data.encoded.from_hub", lambda *_: None)
        assert prepare("emnist_letters", tmp_path / "out", tmp_path / "in") == (copy,)
    source, again = (small("emnist_letters", folder=tmp_path / folder) for folder in ("in", "out"))
    for left, right in zip(_all(source), _all(again), strict=True):
        np.testing.assert_array_equal(left, right)
    assert source.class_names == again.class_names
    with pytest.raises(DataError, match="is itself the source"):
        prepare("emnist_letters", tmp_path / "out", tmp_path / "out")
    with pytest.raises(DataError, match="nothing to prepare"):
        prepare("uniform_noise", tmp_path / "out", None)
    with pytest.raises(DataError, match="needs a data folder"):
        prepare("omniglot", tmp_path / "out", None)


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare("demo_letters", tmp_path, None, interrupt)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    (tmp_path / "blocked").write_text("a file where a folder should be")
    with pytest.raises(DataError, match="cannot write"):
        prepare("demo_letters", tmp_path / "blocked", None)


def test_importing_the_catalogue_is_cheap() -> None:
    heavy = {"torch", "datasets", "pyarrow", "PIL", "scipy"}
    script = f"import sys, certood.data.catalogue; print(*{heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.split() == []


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no image sets in {REAL}")
@pytest.mark.parametrize(
    ("name", "channels", "size", "classes", "length"),
    [("mnist", 1, 28, 10, 10_000), ("nist_letters", 1, 28, 26, 2_990), ("svhn", 3, 32, 10, 8_000)],
)
def test_real_data(name: str, channels: int, size: int, classes: int, length: int) -> None:
    before = {path: path.stat().st_mtime_ns for path in REAL.rglob("*")}
    found = load(name, "test", folder=REAL, channels=channels, size=size)
    assert (len(found), found.shape, found.classes) == (length, (channels, size, size), classes)
    labels = found.labels(np.arange(length))
    assert set(labels) == set(range(classes))
    if name == "mnist":
        np.testing.assert_array_equal(labels[:5], [7, 2, 1, 0, 4])  # the order of the original test set
        assert abs(found.images(np.arange(length)).mean() / 255 - 0.1325) < 1e-3
    assert before == {path: path.stat().st_mtime_ns for path in REAL.rglob("*")}, "loading wrote beside the data"
