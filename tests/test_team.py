"""Processes that work together: several evaluate to the files of one, and none waits for one that is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_filing import contents
from test_machine import OneOf
from test_training_processes import children, gone

from certood.errors import LostProcess
from certood.team import GONE, Team, together

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
FEW = ("--limit", "22", "--attack-samples", "10", "--batch-size", "4", "--out-sets", "demo_letters,uniform_noise")


def test_alone_everything_is_ones_own() -> None:
    team = Team()
    assert (team.size, team.number, team.first) == (1, 0, True)
    assert team.told({"a": 1}) == {"a": 1}
    assert team.collected("mine") == ["mine"]


def test_a_process_that_is_gone_is_told_in_one_sentence() -> None:
    several = OneOf(2, 0)
    for lost in ("[gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:4242", "Gloo connectFullMesh"):
        with pytest.raises(LostProcess, match=GONE), together(several):  # type: ignore[arg-type]
            raise RuntimeError(lost)
    with pytest.raises(RuntimeError, match="shapes"), together(several):  # type: ignore[arg-type]
        raise RuntimeError("shapes do not fit")
    with pytest.raises(RuntimeError, match="gloo"), together(OneOf(1, 0)):  # type: ignore[arg-type]
        raise RuntimeError("gloo")


def words(runs: Path, out: Path, devices: int) -> list[str]:
    named = ["evaluate", str(runs / "oe"), str(runs / "good"), "--out", str(out), "--eps", "0.05", *FEW]
    return [sys.executable, "-m", "certood", *named, "--device", "cpu", "--devices", str(devices)]


def evaluated(runs: Path, out: Path, devices: int) -> str:
    run = subprocess.run(
        words(runs, out, devices), env=ONE_THREAD, capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Scores are in") == 1
    return run.stdout.split("Scores are in")[0]


@pytest.fixture(scope="module")
def alone(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("alone")
    return out, evaluated(runs, out, 1)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_several_processes_leave_the_files_of_one(
    devices: int, runs: Path, alone: tuple[Path, str], tmp_path: Path
) -> None:
    assert evaluated(runs, tmp_path, devices) == alone[1]
    assert contents(tmp_path) == contents(alone[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_one_that_is_killed_ends_all_with_one_line_and_the_same_command_goes_on(
    runs: Path, alone: tuple[Path, str], tmp_path: Path
) -> None:
    with subprocess.Popen(
        words(runs, tmp_path, 2),
        env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        while not list(tmp_path.rglob("*.csv")) and process.poll() is None:
            time.sleep(0.002)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=150)
    assert gone(process.pid)
    assert process.returncode == 2, said
    assert said.count("certood: ") == 1, said
    assert "is gone" in said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    evaluated(runs, tmp_path, 1)
    assert contents(tmp_path) == contents(alone[0])


FAILING = """
import sys
from certood.cli import main
from certood.evaluation import evaluate
from certood.errors import DataError
from certood.ranks import leads
import certood.filing

def failing(*parts):
    for step in evaluate(*parts):
        yield step
        if not leads():
            raise DataError("image 7 cannot be read on this machine")

certood.filing.evaluate = failing
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_what_one_of_the_others_says_is_told_by_the_first(runs: Path, tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    arguments = words(runs, tmp_path / "scores", 2)[3:]
    run = subprocess.run(
        [sys.executable, str(script), *arguments], env=ONE_THREAD, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2, run.stderr
    assert run.stderr.count("certood: ") == 1, run.stderr
    assert "process 1: image 7 cannot be read on this machine; the same command goes on" in run.stderr
