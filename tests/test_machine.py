"""Which process leads, and what is agreed between processes."""

import pytest
import torch
from lightning_fabric import Fabric

from certood.errors import RunError
from certood.machine import Machine, agreed, gathered, leads, total


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
    assert leads() == first


@pytest.mark.parametrize(
    "wrong", [{"devices": 0}, {"nodes": -1}, {"workers": -1}, {"checkpoint_minutes": float("nan")}]
)
def test_numbers_that_no_machine_has(wrong: dict[str, float]) -> None:
    with pytest.raises(RunError, match="at least"):
        Machine(**wrong)


def test_alone_everything_is_ones_own() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    own = torch.tensor([1.0, 2.0])
    everywhere, first = gathered(fabric, own)
    assert torch.equal(everywhere, own)
    assert first == 0
    assert torch.equal(total(fabric, own), own)
    assert (agreed(fabric, True), agreed(fabric, False)) == (True, False)
