"""Tar shards give the images of a copy by an index; what breaks off is refused, and what goes is told."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from data_files import pictures, write_tar

from certood.data import archives
from certood.data.archives import webdataset
from certood.data.sources import ImageSet, load
from certood.errors import DataError, LostFile


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set is too large to be copied, and to be decoded when it is loaded."""
    monkeypatch.setattr("certood.data.shards.LARGE", 0)
    monkeypatch.setattr("certood.data.adapting.DECODED_AT_ONCE", 0)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def out_set(name: str, folder: Path) -> ImageSet:
    return load(name, "train", folder=folder, channels=1, size=28, to_train_against=True)


def write_tars(folder: Path) -> None:
    """20 images in two archives, with a label each."""
    images = pictures(20)
    for number in (0, 1):
        write_tar(folder / f"train-{number}.tar", images[10 * number : 10 * number + 10], [0] * 10)


@pytest.mark.usefixtures("large")
def test_tar_shards_by_an_index_that_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(20)
    write_tars(tmp_path / "tars")
    found = out_set("tars", tmp_path)
    assert np.array_equal(found.images(np.arange(20))[:, 0], images)
    assert found.blocks is None  # any record is as near as any other
    monkeypatch.setattr(archives, "_members", lambda *_: pytest.fail("searched again"))
    assert np.array_equal(out_set("tars", tmp_path).images(np.array([13]))[:, 0], images[13:14])


@pytest.mark.usefixtures("large")
def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    write_tars(tmp_path / "tars")
    before = out_set("tars", tmp_path).images(np.arange(20))
    (kept,) = (tmp_path / "cache" / "certood").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", b"no index", whole[:-100]):
        kept.write_bytes(damaged)
        assert np.array_equal(out_set("tars", tmp_path).images(np.arange(20)), before)
    np.save(kept, np.zeros((20, 2), np.int64))
    assert np.array_equal(out_set("tars", tmp_path).images(np.arange(20)), before)
    assert kept.read_bytes() == whole


@pytest.mark.usefixtures("large")
def test_several_may_index_the_same_archives_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process comes and goes while we write."""
    write_tars(tmp_path / "tars")
    save, before = np.save, list[Path]()

    def meanwhile(*arguments: object) -> None:
        if not before:
            before.append(tmp_path)
            assert len(out_set("tars", tmp_path)) == 20
        save(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(np, "save", meanwhile)
    assert len(out_set("tars", tmp_path)) == 20
    assert before
    assert len(list((tmp_path / "cache" / "certood").iterdir())) == 1


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("long", [False, True], ids=["plain", "by tarfile"])
def test_an_archive_that_breaks_off_is_refused_and_named(long: bool, tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    for number in (0, 1):
        names = [f"{'n' * 150 * long}{at}.png" for at in range(8)]
        archive(tmp_path / "tars" / f"train-{number}.tar", names, tarfile.GNU_FORMAT)
    path = tmp_path / "tars" / "train-1.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as tar:
        members = tar.getmembers()
    header, data = members[4].offset_data - 512, members[4].offset_data
    ends = members[-1].offset_data + -(-members[-1].size // 512) * 512
    for damaged, said in {
        "destroyed": (whole[:header] + b"\xff" * 512 + whole[data:], rf"breaks off at byte {header:,} of"),
        "zeros": (whole[:header] + bytes(512) + whole[data:], rf"breaks off at byte {header:,} of"),
        "one letter": (whole[: header + 1] + b"?" + whole[header + 2 :], rf"breaks off at byte {header:,} of"),
        "no end": (whole[:ends], rf"breaks off at byte {ends:,} of"),
        "cut": (whole[: data + 100], "not a readable tar file"),
        "two in one": (whole + whole, "breaks off at byte"),
        "nothing": (b"", "not a readable tar file"),
    }.values():
        if long and "breaks off" in said and str(f"{header:,}") in said:
            said = "not a readable tar file"  # it is part of a member that begins before
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=said) as refused:
            out_set("tars", tmp_path)
        assert "train-1.tar" in str(refused.value)
        assert "train-0.tar" not in str(refused.value)


def test_an_archive_that_goes_is_no_corrupt_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_tars(tmp_path)
    paths = [tmp_path / f"train-{number}.tar" for number in (0, 1)]
    source = webdataset(paths, "tars")
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[:2000])
    with pytest.raises(LostFile, match=r"train-1\.tar: has become shorter"):
        source.read(np.array([3, 19]))
    paths[1].unlink()
    with pytest.raises(LostFile, match=r"train-1\.tar: cannot be read any more \(No such file"):
        source.read(np.array([3, 19]))


def test_pages_of_the_index_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_tars(tmp_path)
    given, forget = list[int](), archives.forget
    monkeypatch.setattr(archives, "forget", lambda index: (given.append(len(index)), forget(index)))
    source = webdataset([tmp_path / "train-0.tar"], "tars")
    assert len(source.read(np.arange(10))) == 10
    assert given
    assert set(given) == {10}


def archive(path: Path, names: list[str], form: int = tarfile.USTAR_FORMAT) -> Path:
    """Records of different lengths, one a folder."""
    with tarfile.open(path, "w", format=form) as tar:
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size, member.type = 300 * number, tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size *= member.isfile()
            tar.addfile(member, io.BytesIO(bytes([number + 1]) * member.size))
    return path


NAMES = [
    "empty.png",
    "a.JPG",
    "b.cls",
    "folder/",
    "folder/c.jpeg",
    "folder/.png",
    "d" * 96 + ".png",
    "e.png.txt",
    "f.gif",
]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("long", ["", "l" * 120 + ".png", "l" * 80 + "/" + "m" * 80 + ".png", "ü" * 60 + ".png"])
def test_an_index_is_that_of_tarfile(form: int, long: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain headers are read by us, all others by tarfile; both find the same places."""
    if form == tarfile.USTAR_FORMAT and len(long.encode()) > 100 and "/" not in long:
        pytest.skip("ustar has no place for such a name")
    path = archive(tmp_path / "a.tar", [*NAMES, *([long] if long else []), "last.png"], form)
    found, plain = archives._members(3, path), archives._plain_members(path)
    assert (plain is None) == bool(long)
    monkeypatch.setattr(archives, "_plain_members", lambda _: None)
    assert np.array_equal(found, archives._members(3, path))
    assert len(found) == 6 + bool(long)


def test_a_damaged_archive_is_left_to_tarfile(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.tar", NAMES).read_bytes()
    assert archives._plain_members(tmp_path / "a.tar") is not None
    ends = whole.rindex(b"f.gif") + 1024
    for damaged in (
        whole[:700],
        whole[:ends],
        whole[: whole.rindex(b"f.gif")],
        b"",
        whole[:124] + b"99999999999" + whole[135:],
        whole[:148] + b"009189\0 " + whole[156:],
    ):
        (tmp_path / "a.tar").write_bytes(damaged)
        assert archives._plain_members(tmp_path / "a.tar") is None
