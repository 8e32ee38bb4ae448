"""Sets that are streamed: row groups give the images of a copy, and what is corrupt or gone is told."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import pictures, png

from certood.data import shards
from certood.data.sources import ImageSet, load
from certood.data.stream import Batches, order_of
from certood.errors import CorruptBlock, CorruptRecord, DataError, LostFile

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
def test_an_epoch_is_the_same_from_any_step_on(tmp_path: Path) -> None:
    write_shards(tmp_path / "many", [png(image) for image in pictures(COUNT)])
    inside = load("demo_digits", "train", folder=None, channels=1, size=28, limit=64)
    whole = [
        batch.out_images for batch in map(Batches(inside, out_set("many", tmp_path), 16, 0).__getitem__, range(20))
    ]
    again = Batches(inside, out_set("many", tmp_path), 16, 0)
    for step in (13, 4, 19):
        assert np.array_equal(again[step].out_images, whole[step])


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


def damage(path: Path, group: int) -> None:
    """Zeros where the images of a row group are."""
    described = pq.ParquetFile(path).metadata.row_group(group).column(0)
    with path.open("r+b") as file:
        file.seek(described.dictionary_page_offset or described.data_page_offset)
        file.write(bytes(described.total_compressed_size))


@pytest.mark.usefixtures("large")
def test_a_damaged_row_group_is_read_once_and_others_stand_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than any number of single images that are tried one after the other."""
    count, per_group = 3300, 1100
    write_shards(tmp_path / "many", [png(image) for image in pictures(count)], 1, per_group)
    path = tmp_path / "many" / "train-00000-of-00001.parquet"
    damage(path, 1)
    read, groups = pq.ParquetFile.read_row_group, list[int]()

    def counted(self: pq.ParquetFile, group: int, **more: object) -> pa.Table:
        groups.append(group)
        return read(self, group, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    found = out_set("many", tmp_path)
    with pytest.raises(CorruptBlock, match=r"train-00000-of-00001\.parquet: row group 1 is damaged"):
        found.images(np.array([1500]))
    inside = load("demo_digits", "train", folder=None, channels=1, size=28, limit=64)
    batches = [Batches(inside, found, 100, 0)[step] for step in range(33)]
    assert {index for batch in batches for index in batch.corrupt} == set(range(1100, 2200))
    assert all(len(np.unique(batch.out_images, axis=0)) > 90 for batch in batches)  # not one for all
    assert groups.count(1) == 1
    other = out_set("many", tmp_path)  # another process, which begins elsewhere
    for step in (30, 12, 3):
        assert np.array_equal(Batches(inside, other, 100, 0)[step].out_images, batches[step].out_images)


@pytest.mark.usefixtures("large")
def test_a_set_of_which_nothing_can_be_read_is_given_up(tmp_path: Path) -> None:
    write_shards(tmp_path / "many", [b"no picture"] * COUNT)
    with pytest.raises(DataError, match="1000 corrupt images one after the other"):
        out_set("many", tmp_path)


@pytest.mark.usefixtures("large")
def test_a_file_that_goes_is_no_corrupt_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path / "many", [png(image) for image in pictures(COUNT)])
    found, last = out_set("many", tmp_path), tmp_path / "many" / "train-00002-of-00003.parquet"
    for fault in (OSError(5, "Input/output error"), ConnectionResetError("reset"), TimeoutError("no answer")):
        monkeypatch.setattr(pq.ParquetFile, "read_row_group", _raising(fault))
        with pytest.raises(LostFile, match=r"train-00002-of-00003\.parquet: cannot be read any more"):
            found.images(np.array([COUNT - 1]))
    monkeypatch.undo()
    last.rename(tmp_path / "elsewhere")
    with pytest.raises(LostFile, match="cannot be read any more"):
        found.images(np.array([COUNT - 1]))
    (tmp_path / "elsewhere").rename(last)
    assert found.images(np.array([COUNT - 1])).shape == (1, 1, 28, 28)  # nothing was remembered as broken


def _raising(fault: OSError) -> Callable[..., None]:
    def raises(*_: object, **__: object) -> None:
        raise fault

    return raises


@pytest.mark.usefixtures("large")
def test_every_file_has_a_column_of_its_own_name(tmp_path: Path) -> None:
    images = pictures(20)
    (tmp_path / "two").mkdir()
    for number, name in enumerate(("image", "img")):
        part = [{"bytes": png(image), "path": None} for image in images[10 * number : 10 * number + 10]]
        table = pa.table({"label": [0] * 10, name: part} if number else {name: part})
        pq.write_table(table, tmp_path / "two" / f"train-{number}.parquet")
    assert np.array_equal(out_set("two", tmp_path).images(np.arange(20))[:, 0], images)
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "two" / "train-2.parquet")
    with pytest.raises(DataError, match=r"train-2\.parquet: no column of images"):
        out_set("two", tmp_path)


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
