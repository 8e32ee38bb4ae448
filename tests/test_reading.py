"""However reading ends, a training ends with one line that says what it was and whether it can go on."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_training import TINY
from torch.utils.data import DataLoader, get_worker_info

from certood.data.stream import Batches
from certood.errors import CertoodError, DataError, LostFile, LostProcess
from certood.machine import Machine
from certood.reading import read_ahead
from certood.training import train


class Ending:
    """Numbers up to 3, then an end."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getitem__(self, step: int) -> Any:
        if step == 3:
            raise self.error
        return np.array([step])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("error", "told", "said"),
    [
        (DataError("train-1.tar: no image: it is empty"), DataError, "train-1.tar: no image: it is empty"),
        (OSError("Input/output error"), LostFile, "images cannot be read (Input/output error)"),
        (ConnectionResetError("by peer"), LostFile, "images cannot be read (by peer)"),
    ],
)
def test_what_a_reader_raises_is_told_in_its_words(
    workers: int, error: BaseException, told: type[CertoodError], said: str
) -> None:
    batches = read_ahead(Ending(error), range(5), workers)  # type: ignore[arg-type]
    assert [int(np.asarray(next(batches))[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(told) as found:
        next(batches)
    assert str(found.value) == said


@pytest.mark.parametrize("saved", [False, True])
def test_a_reader_that_is_killed_ends_a_training_that_can_go_on(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, really = Batches.__getitem__, os.getpid()

    def killed(self: Batches, step: int) -> Any:
        if step == 6 and get_worker_info() is not None:
            while saved and not (tmp_path / "run" / "state" / "last.pt").exists():
                time.sleep(0.01)
            assert os.getpid() != really
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, step)

    monkeypatch.setattr(Batches, "__getitem__", killed)
    machine = Machine(workers=1, checkpoint_minutes=0 if saved else 10)
    hint = "the same command with --resume goes on" if saved else "nothing was saved yet: start again"
    with pytest.raises(LostProcess, match=f"a process that reads images ended.*; {hint}"):
        train(replace(TINY, batch_size=16, in_limit=320), tmp_path / "run", machine=machine, quiet=True)
    assert (tmp_path / "run").exists() == saved


def test_torch_does_not_tell_it_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where a loader was used in this process before, after which torch listens for dead processes."""
    monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_SIGCHLD_handler_set", False)
    assert len(list(DataLoader([1, 2], num_workers=1))) == 2  # type: ignore[arg-type]
    listening = signal.getsignal(signal.SIGCHLD)
    assert getattr(listening, "__module__", "").startswith("torch.")
    batches = read_ahead(Ending(None), range(2), 1)  # type: ignore[arg-type]
    next(batches)
    assert signal.getsignal(signal.SIGCHLD) is not listening
