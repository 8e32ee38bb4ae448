"""Sets that are streamed: row groups and tar shards give the images of a copy, and corrupt ones are told."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import pictures, png, write_tar

from certood.data import shards
from certood.data.sources import ImageSet, load
from certood.data.stream import Batches, order_of
from certood.errors import CorruptRecord, DataError

COUNT, PER_GROUP = 230, 20


def write_shards(folder: Path, records: list[bytes], files: int = 3, per_group: int = PER_GROUP) -> None:
    folder.mkdir(parents=True)
    for number, part in enumerate(np.array_split(np.arange(len(records)), files)):
        table = pa.table({"image": [{"bytes": records[at], "path": None} for at in part], "label": [0] * len(part)})
        pq.write_table(table, folder / f"train-{number:05d}-of-{files:05d}.parquet", row_group_size=per_group)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set is too large to be copied, and to be decoded when it is loaded."""
    monkeypatch.setattr(shards, "LARGE", 0)
    monkeypatch.setattr("certood.data.adapting.DECODED_AT_ONCE", 0)


def out_set(name: str, folder: Path, limit: int | None = None) -> ImageSet:
    return load(name, "train", folder=folder, channels=1, size=28, limit=limit, to_train_against=True)


@pytest.mark.usefixtures("large")
def test_row_groups_give_every_image_and_a_pass_is_a_permutation(tmp_path: Path) -> None:
    images = pictures(COUNT)
    write_shards(tmp_path / "many", [png(image) for image in images])
    found = out_set("many", tmp_path)
    assert len(found) == COUNT
    assert found.classes == 0
    assert np.array_equal(found.images(np.arange(COUNT))[:, 0], images)
    assert found.blocks is not None
    assert found.blocks.starts[-1] == COUNT
    order = order_of(found, 0, "out")
    for number in (0, 1):
        assert sorted(order.indices(number * COUNT, COUNT)) == list(range(COUNT))


@pytest.mark.usefixtures("large")
def test_memory_is_that_of_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "HELD", int(2.5 * PER_GROUP * 900))  # two row groups of these images
    write_shards(tmp_path / "many", [png(image) for image in pictures(COUNT)])
    found = out_set("many", tmp_path)
    assert found.blocks is not None
    assert found.blocks.window == 2
    held: list[int] = []
    groups = 0
    read = pq.ParquetFile.read_row_group

    def counted(self: pq.ParquetFile, *args: object, **more: object) -> pa.Table:
        nonlocal groups
        groups += 1
        return read(self, *args, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    order = order_of(found, 0, "out")
    for start in range(0, COUNT, 10):
        held.append(len(set(order.indices(start, 10) // PER_GROUP)))
        found.images(order.indices(start, 10))
    assert groups <= len(found.blocks.starts) + 2  # each once in a pass, but for a window that ends inside a batch
    assert max(held) <= 5


@pytest.mark.usefixtures("large")
def test_tar_shards_by_an_index_that_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    images = pictures(20)
    for number in (0, 1):
        write_tar(tmp_path / "tars" / f"train-{number}.tar", images[10 * number : 10 * number + 10], [0] * 10)
    found = out_set("tars", tmp_path)
    assert np.array_equal(found.images(np.arange(20))[:, 0], images)
    assert found.blocks is None  # any record is as near as any other
    monkeypatch.setattr(shards, "_members", lambda *_: pytest.fail("searched again"))
    assert np.array_equal(out_set("tars", tmp_path).images(np.array([13]))[:, 0], images[13:14])


@pytest.mark.usefixtures("large")
def test_an_epoch_is_the_same_from_any_step_on(tmp_path: Path) -> None:
    write_shards(tmp_path / "many", [png(image) for image in pictures(COUNT)])
    inside = load("demo_digits", "train", folder=None, channels=1, size=28, limit=64)
    whole = [
        batch.out_images for batch in map(Batches(inside, out_set("many", tmp_path), 16, 0).__getitem__, range(20))
    ]
    again = Batches(inside, out_set("many", tmp_path), 16, 0)
    for step in (13, 4, 19):
        assert np.array_equal(again[step].out_images, whole[step])


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
    found, plain = shards._members(3, path), shards._plain_members(path)
    assert (plain is None) == bool(long)
    monkeypatch.setattr(shards, "_plain_members", lambda _: None)
    assert np.array_equal(found, shards._members(3, path))
    assert len(found) == 6 + bool(long)


def test_a_damaged_archive_is_left_to_tarfile(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.tar", NAMES).read_bytes()
    assert shards._plain_members(tmp_path / "a.tar") is not None
    ends = whole.rindex(b"f.gif") + 1024
    for damaged in (
        whole[:700],
        whole[:ends],
        whole[: whole.rindex(b"f.gif")],
        b"",
        whole[:124] + b"99999999999" + whole[135:],
    ):
        (tmp_path / "a.tar").write_bytes(damaged)
        assert shards._plain_members(tmp_path / "a.tar") is None


@pytest.mark.usefixtures("large")
def test_corrupt_records_are_skipped_and_told(tmp_path: Path) -> None:
    records = [png(image) for image in pictures(COUNT)]
    records[5], records[6], records[100] = b"", b"no picture", records[100][:50]
    write_shards(tmp_path / "many", records)
    found = out_set("many", tmp_path)
    with pytest.raises(CorruptRecord, match="image 6"):
        found.images(np.array([6]))
    inside = load("demo_digits", "train", folder=None, channels=1, size=28, limit=64)
    batches = Batches(inside, found, 23, 0)
    told = [batches[step].corrupt for step in range(10)]
    assert {index for each in told for index in each} == {5, 6, 100}
    assert all(len(batches[step].out_images) == 23 for step in range(10))


def test_a_small_set_is_decoded_without_its_corrupt_records(tmp_path: Path) -> None:
    images = pictures(30)
    records = [png(image) for image in images]
    records[7] = b"no picture"
    write_shards(tmp_path / "few", records, files=1)
    found = out_set("few", tmp_path)
    assert found.corrupt == (7,)
    assert np.array_equal(found.images(np.arange(29))[:, 0], np.delete(images, 7, axis=0))
    with pytest.raises(DataError, match="image 7: cannot be decoded"):
        load("few", "train", folder=tmp_path, channels=1, size=28)


@pytest.mark.usefixtures("large")
def test_a_limit_takes_what_it_takes_of_a_copy(tmp_path: Path) -> None:
    write_shards(tmp_path / "many", [png(image) for image in pictures(COUNT)])
    streamed = out_set("many", tmp_path, limit=50)
    copied = load("many", "train", folder=tmp_path, channels=1, size=28, limit=50)
    assert np.array_equal(streamed.images(np.arange(50)), copied.images(np.arange(50)))
    assert sorted(order_of(streamed, 0, "out").indices(0, 50)) == list(range(50))


def test_what_cannot_be_streamed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "many", [png(image) for image in pictures(10)])
    files = sorted((tmp_path / "many").iterdir())
    monkeypatch.setattr(shards, "LARGEST", 10)
    with pytest.raises(DataError, match="row group of 0 MB must be held at once"):
        shards.parquet(files, "many", "digest")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "words.parquet")
    with pytest.raises(DataError, match="no column of images; found text"):
        shards.parquet([tmp_path / "words.parquet"], "words", "digest")
    (tmp_path / "not.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="not readable as parquet"):
        shards.parquet([tmp_path / "not.parquet"], "not", "digest")


def test_the_hub_is_read_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network: `datasets` names files of this machine instead of the hub's."""
    import datasets

    images = pictures(COUNT)
    write_shards(tmp_path / "many", [png(image) for image in images])
    urls = [f"file://{path}" for path in sorted((tmp_path / "many").iterdir())]
    monkeypatch.setattr(
        datasets,
        "load_dataset_builder",
        lambda name: SimpleNamespace(config=SimpleNamespace(data_files={"train": urls})),
    )
    found = load("hub:somebody/many", "train", folder=None, channels=1, size=28, to_train_against=True)
    assert np.array_equal(found.images(np.arange(COUNT))[:, 0], images)
    with pytest.raises(DataError, match=r"no parquet files of a split 'test'; found train"):
        load("hub:somebody/many", "test", folder=None, channels=1, size=28, to_train_against=True)
