"""One process at a time, and no lock that outlives its process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from certood.errors import RunError
from certood.locks import NAME, locked

HOLD = "import sys, time; from pathlib import Path; from certood.locks import locked\n"
HOLD += "with locked(Path(sys.argv[1]), 'training'): print('held', flush=True); time.sleep(60)"


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_and_a_killed_one_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(3):
        with holder(folder) as first:
            with pytest.raises(RunError, match="another process is training in"), locked(folder, "training"):
                pass
            first.send_signal(signal.SIGKILL)
            first.wait()
        with locked(folder, "training"):  # although the file of the killed one is still there
            assert (folder / NAME).exists()
        assert not folder.exists() or not any(folder.iterdir())


def test_a_folder_that_was_made_for_nothing_goes_and_others_stay(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b", "x"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a").exists()
    with locked(tmp_path / "a" / "b", "x"):
        (tmp_path / "a" / "b" / "file").write_text("kept")
    assert os.listdir(tmp_path / "a" / "b") == ["file"]  # noqa: PTH208
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write to"), locked(tmp_path / "file", "x"):
        pass


def test_a_folder_that_its_maker_takes_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, really, times = tmp_path / "run", os.open, 0

    def taken_away(path: Path, *more: int) -> int:
        nonlocal times
        times += 1
        if times <= 3 or folder.name == "never":
            folder.rmdir()
        return really(path, *more)

    monkeypatch.setattr(os, "open", taken_away)
    with locked(folder, "training"):
        assert times == 4
    folder = tmp_path / "never"
    with pytest.raises(RunError, match=r"cannot write to .*No such file"), locked(folder, "training"):
        pass


RACE = """
import sys, time
from pathlib import Path
from certood.errors import RunError
from certood.locks import locked
folder, end = Path(sys.argv[1]), time.monotonic() + 1.5
while time.monotonic() < end:
    try:
        with locked(folder, "x"):
            alone = folder.parent / "alone"
            alone.open("x").close()  # fails if somebody else is here
            alone.unlink()
    except RunError:
        pass
"""


def test_never_two_at_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    racers = [subprocess.Popen([sys.executable, "-c", RACE, str(tmp_path / "run")]) for _ in range(4)]
    assert [racer.wait() for racer in racers] == [0] * 4


def test_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    with locked(tmp_path, "x"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"], close_fds=False)
    with holder(tmp_path) as other:
        other.kill()
    child.kill()
    child.wait()
