"""Damaged and forged files of every kind: what comes out is an answer or a CertoodError, quickly.

`python tests/fuzzing.py 100000` is the same with more files; docs/reliability.md says what it found.
"""

import json
import random
from pathlib import Path

import pytest
from fuzzing import PATIENCE, STRANGE, Target, attempt, mutated, targets

KINDS = (
    *("recipe", "weights", "calibration", "checkpoint", "certificate", "forged certificate", "weights for the auditor"),
    *("image for the auditor", "picture for the auditor", "image for a guard", "image of a set"),
    *("scores", "meta of scores", "worst points", "npz", "npy", "idx", "idx.gz", "cifar", "mat"),
)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return targets(tmp_path_factory.mktemp("fuzzed"))


def test_every_kind_is_here(kinds: dict[str, Target]) -> None:
    assert tuple(kinds) == KINDS


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_only_answers_and_errors_that_teach(name: str, count: int, kinds: dict[str, Target]) -> None:
    found = attempt(kinds[name], count, seed=1)
    assert not found.escaped, found.escaped[0]
    assert found.answered + found.refused == count
    assert found.refused > 0
    assert found.slowest < PATIENCE


def test_undamaged_files_are_answered(kinds: dict[str, Target]) -> None:
    for name, target in kinds.items():
        if "image" not in name:  # theirs are also of other sizes
            target.path.write_bytes(target.seeds[0])
            target.read(target.path)


def test_a_reader_that_lets_something_through_is_noticed(tmp_path: Path) -> None:
    careless = Target([b'{"a": 1}'], tmp_path / "a.json", lambda path: 1 / json.loads(path.read_bytes())["a"])
    found = attempt(careless, 200, seed=0)
    assert found.escaped
    assert found.answered


def test_mutations_differ_and_can_be_drawn_again() -> None:
    data = json.dumps({"a": [1, 2], "b": "text"}).encode()
    many = {mutated(data, random.Random(seed)) for seed in range(300)}
    assert len(many) > 200
    assert mutated(data, random.Random(7)) == mutated(data, random.Random(7))
    assert any(json.dumps(value).encode() in text for text in many for value in STRANGE if value and value is not True)
