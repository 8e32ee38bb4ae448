"""Several trainings: what is there is kept, what was stopped goes on, what fails does not stop the others."""

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from certood import several
from certood.errors import RunError, TrainingFailed
from certood.machine import Machine
from certood.recipes import recipe
from certood.runs import Run
from certood.several import FAILED, Stages, train_all, train_in_turn

TINY = replace(recipe("demo", "plain", epochs=1), in_limit=200, batch_size=100)


def test_what_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [("a", TINY), ("b", replace(TINY, seed=1))]
    assert train_all(plan[:1], tmp_path, None, Machine(), Stages(1)) == (["a"], [])
    before = (tmp_path / "a" / "weights.safetensors").stat().st_mtime_ns
    assert train_all(plan, tmp_path, None, Machine(), Stages(2)) == (["a", "b"], [])
    assert (tmp_path / "a" / "weights.safetensors").stat().st_mtime_ns == before
    said = [line.split("min")[1].strip() for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert said == ["training a, 1 epochs", "a is there", "training b, 1 epochs"]


def test_another_recipe_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    train_all([("b", TINY)], tmp_path, None, Machine(), Stages(1))
    with pytest.raises(RunError, match="another recipe"):
        train_all([("a", TINY), ("b", replace(TINY, seed=1))], tmp_path, None, Machine(), Stages(2))
    assert not (tmp_path / "a").exists()


def test_a_stopped_run_goes_on_and_a_failed_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = [("diverges", replace(TINY, lr=1e30, optimiser="sgd")), ("fine", TINY)]
    finish = Run.finish

    def interrupted(self: Run, *parts: object) -> None:
        if self.folder.name == "fine":
            raise KeyboardInterrupt
        finish(self, *parts)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_all(plan, tmp_path, None, Machine(checkpoint_minutes=0), Stages(2))
    assert train_all(plan, tmp_path, None, Machine(), Stages(2)) == (["fine"], ["diverges"])
    said = capsys.readouterr().err
    assert "training fine, 1 epochs from its checkpoint" in said
    assert "diverges diverged in epoch" in said
    assert issubclass(TrainingFailed, Exception)


# ---- several processes -----------------------------------------------------------------------------------------------

SWEEP = [sys.executable, "-m", "certood", "train", "demo", "--sweep", "plain,oe,good100", "--epochs", "20"]
FEW = ("--in-limit", "300", "--out-limit", "300", "--batch-size", "50", "--checkpoint-minutes", "0", "--seeds", "0,1")
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def runs_of(out: Path) -> dict[str, float]:
    """The finished runs, and the loss of their last epoch: which rounding may change, as memory lies elsewhere."""
    logs = {path.parent.name: (path.parent / "log.csv").read_text() for path in out.glob("*/weights.safetensors")}
    return {name: float(list(csv.DictReader(log.splitlines()))[-1]["loss"]) for name, log in logs.items()}


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    out = tmp_path_factory.mktemp("one")
    subprocess.run([*SWEEP, "--out", str(out), *FEW], env=ONE_THREAD, check=True, capture_output=True)
    return runs_of(out)


@pytest.mark.slow
def test_processes_share_a_sweep(by_one: dict[str, float], tmp_path: Path) -> None:
    words = [*SWEEP, "--out", str(tmp_path), *FEW, "--jobs", "2"]
    run = subprocess.run(words, env=ONE_THREAD, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert len(by_one) == 6
    assert runs_of(tmp_path) == pytest.approx(by_one, rel=0.01)
    trained = sum(" training " in line for line in run.stderr.splitlines())
    assert 1 <= trained < 6, run.stderr  # the helper had the others


@pytest.mark.slow
def test_two_commands_share_a_folder_and_what_one_leaves_when_it_is_killed_the_other_finishes(
    by_one: dict[str, float], tmp_path: Path
) -> None:
    words = [*SWEEP, "--out", str(tmp_path), *FEW]
    first = subprocess.Popen(words, env=ONE_THREAD, stderr=subprocess.DEVNULL, start_new_session=True)
    while not list(tmp_path.glob("*/state/last.pt")) and first.poll() is None:
        time.sleep(0.002)
    second = subprocess.Popen(words, env=ONE_THREAD, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    _, said = second.communicate(timeout=200)
    assert second.returncode == 0, said
    assert runs_of(tmp_path) == pytest.approx(by_one, rel=0.01)


def test_a_run_of_another_process_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lets go of the lock without having finished, as a process does that is killed."""
    script = "import sys; from pathlib import Path; from certood.locks import locked\n"
    script += "with locked(Path(sys.argv[1]), 'training'): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(tmp_path / "b")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        def let_go(seconds: float) -> None:
            other.kill()
            other.wait()

        monkeypatch.setattr(several.time, "sleep", let_go)
        plan = [("b", TINY), ("a", replace(TINY, seed=1))]
        assert train_all(plan, tmp_path, None, Machine(), Stages(2)) == (["b", "a"], [])
    said = capsys.readouterr().err
    assert said.count("waiting for b, which other processes train") == 1
    assert said.index("training a") < said.index("waiting for b") < said.index("training b")


def test_what_failed_elsewhere_is_not_tried_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steep = replace(TINY, lr=1e30, optimiser="sgd")
    assert train_all([("steep", steep)], tmp_path, None, Machine(), Stages(1)) == ([], ["steep"])
    assert "diverged" in (tmp_path / "steep" / FAILED).read_text()
    monkeypatch.setattr(several.time, "time", lambda: 0.0)  # this process began before the other failed
    monkeypatch.setattr(several, "train", lambda *_, **__: pytest.fail("tried again"))
    assert train_all([("steep", steep)], tmp_path, None, Machine(), Stages(1)) == ([], ["steep"])


def test_a_run_waits_for_the_one_it_starts_from_and_fails_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = replace(TINY, seed=1, start_from=str(tmp_path / "first"))
    plan = [("later", later), ("first", TINY), ("other", replace(TINY, seed=2))]
    assert train_all(plan, tmp_path, None, Machine(), Stages(3)) == (["later", "first", "other"], [])
    assert Run(tmp_path / "later").finished()
    steep = replace(TINY, lr=1e30, optimiser="sgd")
    plan = [("steep", steep), ("lost", replace(later, start_from=str(tmp_path / "steep"))), ("first", TINY)]
    assert train_all(plan, tmp_path, None, Machine(), Stages(3)) == (["first"], ["steep", "lost"])
    assert "lost cannot start: steep failed" in capsys.readouterr().err
    elsewhere = replace(TINY, seed=3, start_from=str(tmp_path / "first"))  # a run of the same name in another folder
    assert train_all([("first", elsewhere)], tmp_path / "more", None, Machine(), Stages(1)) == (["first"], [])
    monkeypatch.chdir(tmp_path)
    plan = [("steep", steep), ("lost", replace(later, start_from=str(tmp_path / "more" / "steep")))]
    assert train_all(plan, Path("more"), None, Machine(), Stages(2)) == ([], ["steep", "lost"])


def test_a_folder_may_be_moved_with_what_its_runs_started_from(tmp_path: Path) -> None:
    plan = [("first", TINY), ("later", replace(TINY, seed=1, start_from=str(tmp_path / "a" / "first")))]
    train_all(plan, tmp_path / "a", None, Machine(), Stages(2))
    (tmp_path / "a").rename(tmp_path / "b")
    plan[1] = ("later", replace(TINY, seed=1, start_from=str(tmp_path / "b" / "first")))
    assert train_all(plan, tmp_path / "b", None, Machine(), Stages(2)) == (["first", "later"], [])


def test_no_jobs_are_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="at least 1"):
        train_in_turn([("a", TINY)], tmp_path, None, Machine(), Stages(1), 0)
