"""Several trainings: what is there is kept, what was stopped goes on, what fails does not stop the others."""

from dataclasses import replace
from pathlib import Path

import pytest

from certood.errors import RunError, TrainingFailed
from certood.machine import Machine
from certood.recipes import recipe
from certood.runs import Run
from certood.several import Stages, train_all

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
