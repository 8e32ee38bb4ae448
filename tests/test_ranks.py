"""Which process this is."""

import os

import pytest

from certood import ranks
from certood.ranks import leads, speaks


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"RANK": "0"}, True),
        ({"RANK": "3"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"SLURM_PROCID": "0"}, True),
    ],
)
def test_who_leads(variables: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert leads() == speaks() == first


def test_the_second_speaks_for_a_first_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not speaks()
    monkeypatch.setattr(ranks, "PARENT", os.getppid() + 1)
    assert speaks()
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert not speaks()
