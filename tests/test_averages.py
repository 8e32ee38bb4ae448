"""Mean and standard deviation over seeds."""

import csv
import io

import numpy as np
import pytest

from certood.averages import Average, as_csv, as_markdown, averages
from certood.metrics import Forms
from certood.summary import Cell, Summary


def summary(
    name: str, accuracy: float, aucs: dict[str, tuple[float, float | None, float]], eps: float = 0.3
) -> Summary:
    cells = tuple(
        Cell(out_set, eps, 10, Forms(*three, 5), Forms(0.1, None, 0.2, 0), 0, None) for out_set, three in aucs.items()
    )
    return Summary(name, name, "mnist", 10, accuracy, 0.9, cells, {})


SYSTEMS = {
    "oe": [
        summary("oe", 0.98, {"fashion_mnist": (1.0, 0.5, 0.0), "cifar10": (1.0, None, 0.1)}),
        summary("oe-seed1", 0.96, {"fashion_mnist": (0.9, 0.2, 0.0), "cifar10": (1.0, 0.3, 0.2)}),
        summary("oe-seed2", 0.97, {"fashion_mnist": (0.8, 0.2, 0.0)}),
    ],
    "good80": [summary("good80", 0.95, {"fashion_mnist": (0.9, 0.8, 0.7)})],
}


def test_numbers() -> None:
    found = averages(SYSTEMS)
    for key, values in {
        ("oe", 0.0, "", "accuracy"): (98, 96, 97),
        ("oe", 0.3, "fashion_mnist", "AUC"): (100, 90, 80),
        ("oe", 0.3, "fashion_mnist", "AAUC"): (50, 20, 20),
    }.items():
        average = found[key]
        assert average is not None
        assert average.mean == pytest.approx(np.mean(values))
        assert average.deviation == pytest.approx(np.std(values, ddof=1))
    assert found["good80", 0.3, "fashion_mnist", "GAUC"] == Average(pytest.approx(70), None)


def test_what_a_seed_lacks_is_left_out() -> None:
    assert ("oe", 0.3, "cifar10", "AUC") not in averages(SYSTEMS)
    two = averages({"oe": SYSTEMS["oe"][:2]})
    assert two["oe", 0.3, "cifar10", "AAUC"] is None
    assert two["oe", 0.3, "cifar10", "GAUC"] == Average(pytest.approx(15), pytest.approx(np.std([10, 20], ddof=1)))


def test_as_text() -> None:
    lines = as_markdown(averages(SYSTEMS)).splitlines()
    assert lines[0] == "eps 0.3"
    assert lines[2] == "| system | seeds | accuracy | FashionMNIST AUC | FashionMNIST AAUC | FashionMNIST GAUC |"
    assert lines[4] == "| oe | 3 | 97.0 ± 1.0 | 90.0 ± 10.0 | 30.0 ± 17.3 | 0.0 ± 0.0 |"
    assert lines[5] == "| good80 | 1 | 95.0 | 90.0 | 80.0 | 70.0 |"
    rows = list(csv.DictReader(io.StringIO(as_csv(averages(SYSTEMS)))))
    assert rows[0]["number"] == "seeds"
    assert float(rows[0]["mean"]) == 3
    assert rows[1] == {
        **{"system": "oe", "eps": "0", "out_set": "", "number": "accuracy"},
        **{"mean": "97.0000", "deviation": "1.0000"},
    }
