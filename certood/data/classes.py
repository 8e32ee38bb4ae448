"""Classes of one set that are classes of another: images of them are no out-distribution images.

A class is known by its name of WordNet (wnid) or in words, as the files of a set name it; where they only number their
classes, as parquet files may, a `classes.csv` beside them says which number is which wnid (columns label, wnid).
"""

import csv
from pathlib import Path

import numpy as np

from certood.data.formats import Indices, Source
from certood.errors import DataError

# Of Tiny ImageNet's 200 classes: wnid -> name, and which class of the other set it is. Near misses stay, as what is no
# CIFAR-10 class: school bus, freight car, trolleybus, tractor, go-kart, gazelle, bighorn, cougar, lion, salamander.
SHARED: dict[str, dict[str, tuple[str, str]]] = {
    "cifar10": {
        "n02814533": ("beach wagon", "automobile"),
        "n03100240": ("convertible", "automobile"),
        "n03670208": ("limousine", "automobile"),
        "n03977966": ("police van", "automobile"),
        "n04285008": ("sports car", "automobile"),
        "n01855672": ("goose", "bird"),
        "n02002724": ("black stork", "bird"),
        "n02056570": ("king penguin", "bird"),
        "n02058221": ("albatross", "bird"),
        "n02123045": ("tabby", "cat"),
        "n02123394": ("Persian cat", "cat"),
        "n02124075": ("Egyptian cat", "cat"),
        "n02085620": ("Chihuahua", "dog"),
        "n02094433": ("Yorkshire terrier", "dog"),
        "n02099601": ("golden retriever", "dog"),
        "n02099712": ("Labrador retriever", "dog"),
        "n02106662": ("German shepherd", "dog"),
        "n02113799": ("standard poodle", "dog"),
        "n01641577": ("bullfrog", "frog"),
        "n01644900": ("tailed frog", "frog"),
        "n03447447": ("gondola", "ship"),
        "n03662601": ("lifeboat", "ship"),
        "n03796401": ("moving van", "truck"),
    },
}


def of_other(source: Source, other: str, beside: Path | None) -> Indices:
    """The images of classes that the other set has, sorted; `beside` is a file of the set."""
    if other not in SHARED:
        raise DataError(f"which classes are those of {other!r} is not known; there is {', '.join(SHARED)}")
    names = _wnids(beside, source) or source.class_names
    if source.labels is None or not names:
        raise DataError(
            f"{source.where}: its images have no class names, so classes of {other} cannot be left out: put a "
            f"classes.csv (label,wnid) beside it, or add --out-without none"
        )
    shared = SHARED[other]
    words = {name.lower() for name, _ in shared.values()}
    numbers = [number for number, name in enumerate(names) if name in shared or name.split(",")[0].lower() in words]
    return np.flatnonzero(np.isin(source.labels, numbers))


def _wnids(beside: Path | None, source: Source) -> tuple[str, ...]:
    """By label, where a table says it."""
    table = beside.parent / "classes.csv" if beside else None
    if table is None or not table.is_file():
        return ()
    try:
        with table.open(encoding="utf-8", newline="") as file:
            found = {int(row["label"]): row["wnid"] for row in csv.DictReader(file)}
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise DataError(f"{table}: no table of label,wnid ({error}); mend or delete it") from None
    missing = set(range(int(source.labels.max()) + 1)) - found.keys() if source.labels is not None else set()
    if missing:
        raise DataError(f"{table}: says nothing about label {min(missing)}")
    return tuple(found.get(label, "") for label in range(max(found) + 1))
