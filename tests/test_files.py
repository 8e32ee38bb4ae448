"""A file is old or new, never half."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from certood.errors import RunError
from certood.files import write, write_text


def test_what_fails_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")

    def fail(beside: Path) -> None:
        beside.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="disk is full"):
        write(tmp_path / "a.txt", fail)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*a\.txt: No such file"):
        write_text(tmp_path / "no" / "a.txt", "text")


def test_what_is_no_regular_file_keeps_its_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # a device would be replaced just so
    for path in (tmp_path / "pipe", tmp_path, Path()):
        with pytest.raises(RunError, match=r"cannot write .*: that is no regular file"):
            write_text(path, "text")
    assert [(path.name, path.is_fifo()) for path in tmp_path.iterdir()] == [("pipe", True)]


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="File name too long"):
        write_text(tmp_path / ("a" * 300), "text")


WRITE = """
import sys
from pathlib import Path
from certood.files import write_text
for number in range(10**6):
    write_text(Path(sys.argv[1]), str(number % 10) * 200_000)
    if number == 0:
        print("begun", flush=True)
"""


@pytest.mark.parametrize("kills", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_leaves_a_whole_file(kills: int, tmp_path: Path) -> None:
    path, draw = tmp_path / "a.txt", random.Random(0)
    for _ in range(kills):
        writer = subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        time.sleep(draw.random() * 0.05)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        text = path.read_text()
        assert text == text[0] * 200_000
        for left in tmp_path.glob(".*.part"):  # what a killed process leaves; `Run.held` sweeps it up
            left.unlink()
        assert os.listdir(tmp_path) == ["a.txt"]  # noqa: PTH208


def test_a_limit_on_file_sizes_is_told(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    code = "import resource, sys; from pathlib import Path; from certood.files import write_text\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); write_text(Path(sys.argv[1]), 'x' * 100_000)"
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.txt")], capture_output=True, text=True)
    assert "RunError: cannot write" in run.stderr
    assert "files may not become that large here" in run.stderr
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of one megabyte, where the system lets us have one."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True)
        if mounted.returncode:
            pytest.skip("no disk can be mounted here")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_told_and_nothing_is_lost(small_disk: Path) -> None:
    import torch
    from safetensors.torch import save_file

    write_text(small_disk / "a.txt", "old")
    big = {"a": torch.zeros(10**6)}
    for save in (
        lambda beside: beside.write_bytes(bytes(2**21)),
        lambda beside: save_file(big, beside),
        lambda beside: torch.save(big, beside),
    ):
        with pytest.raises(RunError, match="the disk is full; free some space"):
            write(small_disk / "a.txt", save)
        assert (small_disk / "a.txt").read_text() == "old"
        assert [path.name for path in small_disk.iterdir()] == ["a.txt"]
    write_text(small_disk / "a.txt", "new")
    assert (small_disk / "a.txt").read_text() == "new"
