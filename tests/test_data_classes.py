"""Classes of an out-set that the in-distribution has are left out, whatever way the set names its classes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_files import pictures, png, write_parquet

from certood.data.classes import SHARED
from certood.data.entries import CIFAR10
from certood.data.sources import ImageSet, load
from certood.errors import DataError
from certood.recipes import recipe

LABELS = [0, 1, 2, 1, 0, 2, 2]


@pytest.fixture
def colours() -> np.ndarray:
    return pictures(len(LABELS), colour=True, side=32)


def read(folder: Path, without: str = "cifar10") -> ImageSet:
    return load("mine", "train", folder=folder, channels=3, size=32, to_train_against=True, without=without)


def kept(images: ImageSet) -> np.ndarray:
    return images.images(np.arange(len(images)))


def test_the_list() -> None:
    """23 of Tiny ImageNet's classes, each of a class that CIFAR-10 has."""
    assert len(SHARED["cifar10"]) == 23
    assert {other for _, other in SHARED["cifar10"].values()} <= set(CIFAR10)
    assert all(len(wnid) == 9 and wnid[0] == "n" and wnid[1:].isdecimal() for wnid in SHARED["cifar10"])


def test_numbered_classes_by_a_table_beside_them(colours: np.ndarray, tmp_path: Path) -> None:
    write_parquet(tmp_path / "mine" / "train.parquet", [png(image) for image in colours], LABELS)
    with pytest.raises(DataError, match=r"classes.csv \(label,wnid\) beside it, or add --out-without none"):
        read(tmp_path)
    everything = read(tmp_path, "none")
    table = tmp_path / "mine" / "classes.csv"
    table.write_text("label,wnid,name\n0,n02124075,Egyptian cat\n1,n04067472,reel\n2,n02814533,beach wagon\n")
    found = read(tmp_path)
    assert len(found) == 2
    assert np.array_equal(kept(found), colours[[1, 3]].transpose(0, 3, 1, 2))
    assert found.digest != everything.digest == read(tmp_path, "none").digest
    for broken in ("label,wnid\n0,n02124075\n", "a,b\n1,2\n", "label,wnid\nx,n1\n"):
        table.write_text(broken)
        with pytest.raises(DataError, match=r"classes\.csv"):
            read(tmp_path)


@pytest.mark.parametrize("names", [("n02124075", "n04067472", "n03796401"), ("tabby, tabby cat", "reel", "Lifeboat")])
def test_named_classes(names: tuple[str, ...], colours: np.ndarray, tmp_path: Path) -> None:
    for image, label, number in zip(colours, LABELS, range(len(LABELS)), strict=True):
        folder = tmp_path / "mine" / "train" / names[label]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(png(image))
    assert np.array_equal(kept(read(tmp_path)), colours[[1, 3]].transpose(0, 3, 1, 2))


def test_an_unknown_set_is_told(colours: np.ndarray, tmp_path: Path) -> None:
    write_parquet(tmp_path / "mine" / "train.parquet", [png(image) for image in colours], LABELS)
    with pytest.raises(DataError, match="there is cifar10"):
        read(tmp_path, "imagenet")


def test_the_recipe_asks_for_it_where_the_out_set_has_classes() -> None:
    assert recipe("cifar10").out_without == "cifar10"
    assert recipe("cifar10", scale="paper").out_without == "cifar10"
    assert {recipe(name).out_without for name in ("mnist", "svhn", "demo")} == {"none"}
    assert replace(recipe("cifar10"), out_without="none") != recipe("cifar10")


@pytest.mark.slow
def test_tiny_imagenet(images: Path) -> None:
    of = {without: load("tiny_imagenet", "train", folder=images, channels=3, size=32, to_train_against=True,
                        without=without) for without in ("none", "cifar10")}  # fmt: skip
    assert len(of["none"]) == 50_000
    assert len(of["cifar10"]) == 44_293
