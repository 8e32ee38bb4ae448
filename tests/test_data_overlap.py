"""Images that two sets share are found whatever was done to them on the way, and stay away from training."""

import io
from pathlib import Path

import numpy as np
import pytest
from data_files import write_parquet
from PIL import Image

from certood.cli import main
from certood.data import overlap
from certood.data.sources import load
from certood.data.views import Pixels
from certood.errors import DataError


def photos(count: int, split: str = "train") -> Pixels:
    """Genuine photographs, [N, 32, 32, 3]."""
    found = load("demo_photos", split, folder=None, channels=3, size=32).images(np.arange(1000)).transpose(0, 2, 3, 1)
    return found[np.argsort(found.std(axis=(1, 2, 3)))[-count:]]  # those with the most to see


def jpeg(image: Pixels, quality: int = 90) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 photographs inside; outside 300 others and, at 10, 20, ..., 100, ten of those again, darker, compressed."""
    known, others = photos(100, "test"), photos(300)
    outside = [jpeg(image) for image in others]
    for number in range(10):
        outside.insert(10 * (number + 1), jpeg((known[7 * number] * 0.9).astype(np.uint8), quality=75))
    write_parquet(tmp_path / "inside" / "train.parquet", [jpeg(image) for image in known[:50]], [0, 1] * 25)
    write_parquet(tmp_path / "inside" / "test.parquet", [jpeg(image) for image in known[50:]], [0, 1] * 25)
    write_parquet(tmp_path / "outside" / "train.parquet", outside, None)
    return tmp_path


def outside(folder: Path) -> Pixels:
    found = load("outside", "train", folder=folder, channels=3, size=32, to_train_against=True)
    return found.images(np.arange(len(found)))


def test_copies_are_found_noted_and_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = outside(folder)
    main(["data", "overlap", "outside", "inside", "--data", str(folder)])
    assert "10 of 310 images of outside are left out" in capsys.readouterr().out
    assert np.array_equal(outside(folder), np.delete(before, np.arange(10, 101, 10), axis=0))
    monkeypatch.setattr(overlap, "alike", lambda *_: pytest.fail("searched again"))
    main(["data", "overlap", "outside", "inside", "--data", str(folder)])
    overlap.file_of(folder / "outside" / "train.parquet", "train").unlink()
    assert len(outside(folder)) == 310


def test_a_note_about_other_files_is_refused(folder: Path) -> None:
    main(["data", "overlap", "outside", "inside", "--data", str(folder)])
    write_parquet(folder / "outside" / "train.parquet", [jpeg(image) for image in photos(40)], None)
    with pytest.raises(DataError, match="is of other files than those beside it"):
        outside(folder)
    overlap.file_of(folder / "outside" / "train.parquet", "train").write_bytes(b"no note")
    with pytest.raises(DataError, match="run certood data overlap again"):
        outside(folder)


def test_a_second_search_adds_to_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the two sets has one split, and holds some of the copies."""
    before = outside(folder)
    for name, split in (("one", "train"), ("two", "test")):
        (folder / name).mkdir()
        (folder / "inside" / f"{split}.parquet").rename(folder / name / f"{split}.parquet")
    found = []
    for names in (["one"], ["two"], ["one"], ["one", "two"]):
        main(["data", "overlap", "outside", *names, "--data", str(folder)])
        found.append(capsys.readouterr().out.split(", noted")[0])
    assert found[0] == "8 of 310 images of outside are left out from now on, 8 of them new"
    assert found[1] == "10 of 310 images of outside are left out from now on, 2 of them new"
    assert found[2:] == ["10 of 310 images of outside are left out from now on, 0 of them new"] * 2
    assert np.array_equal(outside(folder), np.delete(before, np.arange(10, 101, 10), axis=0))


def brute_force(outside: overlap.Hashes, inside: overlap.Hashes, distance: int) -> list[int]:
    return [at for at, one in enumerate(outside) if min(int(one ^ other).bit_count() for other in inside) <= distance]


@pytest.mark.parametrize("distance", [0, 1, 4, 7])
def test_bands_miss_nothing(distance: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(distance)
    inside = random.integers(0, 2**63, 60).astype(np.uint64)
    own = np.concatenate([random.integers(0, 2**63, 200).astype(np.uint64), np.repeat(inside, 5)])
    for at in range(200, len(own)):
        for bit in random.choice(64, size=at % 10, replace=False):
            own[at] ^= np.uint64(1) << np.uint64(bit)
    halves = [(0, own[:300], np.ones(300, bool)), (300, own[300:], np.ones(200, bool))]
    monkeypatch.setattr(overlap, "hashed", lambda *_: iter(halves))
    found = overlap.alike(lambda _: pytest.fail("not read"), len(own), inside, distance, lambda _: None)
    assert found.tolist() == brute_force(own, inside, distance)
    with pytest.raises(DataError, match="0 to 7"):
        overlap.alike(lambda _: pytest.fail("not read"), 1, inside, 8, lambda _: None)


def test_images_that_show_nothing_are_like_none() -> None:
    flat = np.full((2, 1, 32, 32), 128, np.uint8)
    assert not overlap.hashes(flat)[1].any()
