"""The paper's numbers are found under our names, all of them, and nowhere else."""

import csv
from importlib.resources import files

import pytest

from certood.card import title
from certood.data import entries
from certood.methods import METHODS
from certood.paper import ADDITIONAL, MAIN, NAMES, published
from certood.recipes import recipe


def test_every_row_of_the_table_is_found() -> None:
    ours = {theirs: name for name, theirs in NAMES.items()}
    rows = list(csv.DictReader(files("certood.paper").joinpath("aucs.csv").read_text().splitlines()))
    assert len(rows) == 429
    for row in rows:
        found = published(row["method"], ours[row["in_dataset"]], float(row["epsilon"]), ours[row["out_dataset"]])
        assert found is not None
        assert found == tuple(float(row[name]) for name in ("accuracy", "auc", "aauc", "gauc"))


@pytest.mark.parametrize(
    ("method", "in_set", "eps", "out_set", "numbers"),
    [  # read off the paper's table of main results
        ("GOOD_80", "mnist", 0.3, "fashion_mnist", (99.1, 99.8, 90.3, 55.5)),
        ("Plain", "mnist", 0.3, "emnist_letters", (99.4, 88.0, 31.4, 0.0)),
        ("GOOD_100", "svhn", 0.03, "cifar100", (96.3, 99.6, 97.7, 97.3)),
        ("GOOD_80", "cifar10", 0.01, "uniform_noise", (90.1, 95.8, 95.4, 95.3)),
    ],
)
def test_numbers_read_off_the_paper(
    method: str, in_set: str, eps: float, out_set: str, numbers: tuple[float, ...]
) -> None:
    assert published(method, in_set, eps, out_set) == numbers


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"prood", "discriminator"}))  # which came later
def test_a_run_of_the_paper_finds_its_row_on_every_set(name: str, method: str) -> None:
    chosen = recipe(name, method, "paper")
    for out_set in MAIN[name] + ADDITIONAL[name]:
        assert entries.find(out_set) is not None
        assert published(title(chosen), chosen.in_set, chosen.eps, out_set) is not None


@pytest.mark.parametrize(
    "question",
    [
        ("GOOD_80", "mnist", 0.31, "fashion_mnist"),
        ("GOOD_85", "mnist", 0.3, "fashion_mnist"),
        ("GOOD_80", "mnist", 0.3, "nist_letters"),
        ("GOOD_80", "mnist", 0.3, "mnist"),
        ("GOOD_80", "demo_digits", 0.3, "uniform_noise"),
        ("GOOD_80", "my/images", 0.3, "your/images"),
        ("PROOD", "cifar10", 0.01, "svhn"),
    ],
)
def test_what_the_paper_has_not_is_none(question: tuple[str, str, float, str]) -> None:
    assert published(*question) is None
