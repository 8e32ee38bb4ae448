"""Training by several processes and in parts: the same losses, resumed by any number of them, and nobody waits for a
process that is gone. Gloo on this machine; a run of NCCL is Fabric's and needs GPUs."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_training import TINY, command, log_of

from certood.runs import COLUMNS

pytestmark = pytest.mark.slow

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
QUANTILE = ("--quantile", "0.6", "--kappa-start", "0", "--kappa-ramp", "0.2", "--eps-start", "0.1", "--eps-ramp", "0.5")
EVERY_STEP = ("--checkpoint-minutes", "0", "--resume")


def words(out: Path, devices: int, *more: str) -> list[str]:
    return command(TINY, out, *QUANTILE, "--device", "cpu", "--devices", str(devices), *more)


def trained(out: Path, devices: int, *more: str) -> list[dict[str, str]]:
    run = subprocess.run(
        words(out, devices, *more), env=ONE_THREAD, capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout.count("# demo") == 1  # one of them speaks
    return log_of(out)


def started(out: Path, devices: int, *more: str) -> "subprocess.Popen[str]":
    """A long run in a group of its own, from its first checkpoint on."""
    process = subprocess.Popen(
        words(out, devices, *EVERY_STEP, *more),
        env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    ends = time.monotonic() + 100
    while not (out / "state" / "last.pt").exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.002)
    return process


def alike(logs: list[dict[str, str]], others: list[dict[str, str]]) -> None:
    """The losses agree within rounding, which training then amplifies: short runs."""
    assert len(logs) == len(others)
    for one, two in zip(logs, others, strict=True):
        for column in set(COLUMNS) - {"seconds"}:
            one_image = 0.004 if column == "accuracy" else 0
            assert float(one[column]) == pytest.approx(float(two[column]), rel=2e-3, abs=one_image), column


def gone(group: int) -> bool:
    for _ in range(400):  # the others may take a moment
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return trained(tmp_path_factory.mktemp("alone") / "run", 1)


@pytest.mark.parametrize(("devices", "parts"), [(2, 1), (4, 1), (1, 4), (2, 2)])
def test_processes_and_parts_give_the_same_losses(
    devices: int, parts: int, alone: list[dict[str, str]], tmp_path: Path
) -> None:
    alike(trained(tmp_path / "run", devices, "--accumulate", str(parts)), alone)


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_another_number_of_processes_goes_on(
    before: int, after: int, alone: list[dict[str, str]], tmp_path: Path
) -> None:
    with started(tmp_path / "run", before) as process:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert gone(process.pid)
    assert (tmp_path / "run" / "state" / "last.pt").exists()
    alike(trained(tmp_path / "run", after, "--resume"), alone)


def children(process: int) -> list[int]:
    """Those that run certood, not a helper of multiprocessing."""
    found = []
    for number in (int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()):
        if "certood" in Path(f"/proc/{number}/cmdline").read_text():
            found.append(number)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("first", [False, True], ids=["another", "the first"])
def test_a_process_that_is_killed_ends_all_with_one_line_and_the_run_goes_on(
    first: bool, alone: list[dict[str, str]], tmp_path: Path
) -> None:
    with started(tmp_path / "run", 2) as process:
        os.kill(process.pid if first else children(process.pid)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=150)
    assert gone(process.pid)
    assert process.returncode == (-signal.SIGKILL if first else 2), said
    lines = [line for line in said.splitlines() if line.startswith("certood:")]
    assert len(lines) == 1, said
    assert "one of the processes that work together is gone" in lines[0]
    assert "--resume" in lines[0]
    assert "Traceback" not in said
    alike(trained(tmp_path / "run", 2, "--resume"), alone)


def test_ctrl_c_with_two_processes_leaves_a_checkpoint_and_no_process(tmp_path: Path) -> None:
    out = tmp_path / "run"
    long = command(replace(TINY, epochs=200), out, "--device", "cpu", "--devices", "2")
    with subprocess.Popen(
        long, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not (out / "batch.png").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=150)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert (out / "state" / "last.pt").exists()
    assert said.count("stopped") == 1
    assert gone(process.pid)
