"""The statement of a calibration, against exact binomial arithmetic; the file, against whoever changes it."""

import json
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certood.calibration import FILE, Calibration, guaranteed_share
from certood.errors import GuardError


def tail(count: int, at_least: int, share: Fraction) -> Fraction:
    """P(Binomial(count, share) >= at_least), exactly."""
    return sum(
        (comb(count, hits) * share**hits * (1 - share) ** (count - hits) for hits in range(at_least, count + 1)),
        Fraction(0),
    )


@given(st.integers(1, 200).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))))
def test_the_guaranteed_share_is_clopper_and_pearsons(drawn: tuple[int, int]) -> None:
    count, rank = drawn
    share = Fraction(guaranteed_share(count, rank))
    assert tail(count, count - rank + 1, share) <= Fraction(1, 100)
    assert tail(count, count - rank + 1, share + Fraction(3, 10**6)) > Fraction(1, 100)


def test_a_number_worked_by_hand() -> None:
    # n = 19, accept 0.95: the threshold is the smallest score, and P(all 19 accepted) = p^19 = 0.01 at p = 0.784...
    calibration = Calibration.of(np.arange(19.0), 0.95, "w")
    assert (calibration.threshold, calibration.rank) == (0.0, 1)
    assert calibration.at_least == pytest.approx(0.01 ** (1 / 19), abs=2e-6)
    assert "with 99 % confidence at least 78.4 % of new images" in calibration.statement


@given(st.integers(19, 3000), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.75, 0.949999]))
def test_on_average_more_are_accepted_than_were_asked_for(count: int, accept: float) -> None:
    rank = Calibration.of(np.arange(float(count)), accept, "w").rank
    wanted = Fraction(repr(accept))
    assert 1 - Fraction(rank, count + 1) >= wanted > 1 - Fraction(rank + 1, count + 1)


def test_the_statement_holds_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    kept = 0
    for _ in range(2000):
        calibration = Calibration.of(draw.random(200), 0.9, "w")  # uniform: the share accepted is 1 - threshold
        kept += 1 - calibration.threshold >= calibration.at_least
    assert kept / 2000 == pytest.approx(0.99, abs=0.007)


def test_ties_accept_more_never_less() -> None:
    scores = np.repeat([0.0, 1.0], [50, 50])
    calibration = Calibration.of(scores, 0.9, "w")
    assert calibration.threshold == 0.0  # all of them, since half are alike
    assert calibration.at_least < 1


@pytest.mark.parametrize(
    ("scores", "accept", "told"),
    [
        (np.arange(18.0), 0.95, "18 images are too few to accept 0.95 of later ones: give at least 19"),
        (np.empty(0), 0.5, "0 images are too few"),
        (np.arange(98.0), 0.99, "at least 99"),
        (np.arange(99.0), 1.0, "between 0 and 1"),
        (np.arange(99.0), 95, "between 0 and 1, not 95"),
        (np.arange(99.0), float("nan"), "between 0 and 1"),
        (np.arange(99.0), "0.9", "between 0 and 1"),
        (np.append(np.arange(99.0), np.nan), 0.9, "NaN"),
        (np.full(99, -np.inf), 0.9, "threshold would be -inf"),
    ],
)
def test_what_cannot_be_calibrated(scores: Any, accept: Any, told: str) -> None:
    with pytest.raises(GuardError, match=told):
        Calibration.of(scores, accept, "w")


def test_the_file_comes_back_and_belongs_to_its_weights(tmp_path: Path) -> None:
    assert Calibration.read(tmp_path, "w") is None
    calibration = Calibration.of(np.random.default_rng(1).normal(size=500), 0.95, "w" * 64)
    calibration.write(tmp_path)
    assert Calibration.read(tmp_path, "w" * 64) == calibration
    with pytest.raises(GuardError, match=r"made for other weights \(wwwwwwwwwwww\.\.\., these are vvv"):
        Calibration.read(tmp_path, "v" * 64)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threshold", 0.5),
        ("threshold", "0.5"),
        ("accept", 0.5),
        ("threshold", None),
        ("threshold", float("nan")),
        ("threshold", True),
        ("images", 10**40),
        ("images", 501.0),
        ("rank", 0),
        ("rank", 501),
        ("accept", 7.0),
        ("at_least", 0.999),
        ("statement", "with 99% confidence all of them"),
        ("format", 1),
        ("weights", 7),
    ],
)
def test_a_file_that_somebody_changed(field: str, value: Any, tmp_path: Path) -> None:
    Calibration.of(np.random.default_rng(1).normal(size=500), 0.95, "w").write(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(content | {field: value}))
    with pytest.raises(GuardError, match="no calibration"):
        Calibration.read(tmp_path, "w")
    del content[field]
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(GuardError, match="no calibration"):
        Calibration.read(tmp_path, "w")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"format": 1}', b"1" * 5000])
def test_a_file_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(GuardError, match="no calibration"):
        Calibration.read(tmp_path, "w")
