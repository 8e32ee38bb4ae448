"""Training: it learns, it is the same every time, a kill changes nothing, and it says what fails."""

import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import pictures, png, write_folder, write_parquet
from safetensors.torch import load_file

from certood.errors import DataError, NetworkError, RecipeError, RunError, TrainingFailed
from certood.journal import Journal
from certood.machine import Machine
from certood.recipes import Recipe, recipe
from certood.runs import COLUMNS, Run
from certood.training import train

TINY = replace(recipe("demo", epochs=2), in_limit=300, out_limit=300, batch_size=64, kappa_start=0.2, kappa_ramp=0.5)
QUIET = {**os.environ, "OMP_NUM_THREADS": "1"}
EVERY_STEP = Machine(checkpoint_minutes=0)


def same_weights(first: Path, second: Path) -> bool:
    one, two = (load_file(folder / "weights.safetensors") for folder in (first, second))
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def log_of(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "log.csv").read_text().splitlines()))


def command(chosen: Recipe, out: Path, *more: str) -> list[str]:
    """The command line that trains a variant of the demo recipe."""
    options = [f"--{key.replace('_', '-')}" for key in ("epochs", "in_limit", "out_limit", "batch_size")]
    values = [str(getattr(chosen, key)) for key in ("epochs", "in_limit", "out_limit", "batch_size")]
    pairs = [word for pair in zip(options, values, strict=True) for word in pair]
    return [sys.executable, "-m", "certood", "train", "demo", "--out", str(out), *pairs, *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(TINY, folder)
    return folder


def test_a_run_folder_holds_what_it_should(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names == {
        *("recipe.json", "weights.safetensors", "log.csv", "card.md", "tensorboard", "batch.png", "quantile.png")
    }
    assert Run(finished).recipe() == TINY
    rows = log_of(finished)
    assert tuple(rows[0]) == COLUMNS
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert float(rows[1]["bound_out"]) >= float(rows[1]["confidence_out"])
    assert all(value != "" for row in rows for value in row.values())


def test_the_trained_network_comes_back(finished: Path) -> None:
    network, loaded, class_names = Run(finished).load()
    assert loaded == TINY
    assert class_names == tuple("0123456789")
    assert not network.training
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_two_runs_of_one_recipe_are_the_same(finished: Path, tmp_path: Path) -> None:
    train(TINY, tmp_path / "again")
    assert same_weights(finished, tmp_path / "again")
    train(replace(TINY, seed=1), tmp_path / "other")
    assert not same_weights(finished, tmp_path / "other")


def test_a_process_that_reads_ahead_changes_nothing(finished: Path, tmp_path: Path) -> None:
    train(TINY, tmp_path / "again", machine=Machine(workers=1))
    assert same_weights(finished, tmp_path / "again")


@pytest.mark.parametrize("method", ["plain", "oe", "ceda", "acet", "ccu", "good", "prood"])
def test_every_method_trains(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certood.assembly.FITTED", 1000)
    tiny = replace(TINY, method=method, quantile=0.5, epochs=1, attack_steps=2, eps_ramp=0, eps_start=0)
    run = train(replace(tiny, components=5, discriminator_epochs=1), tmp_path / "r")
    assert run.finished()


@pytest.mark.slow
def test_good_learns_digits_and_guarantees(tmp_path: Path) -> None:
    train(recipe("demo"), tmp_path / "run")
    last = log_of(tmp_path / "run")[-1]
    assert float(last["accuracy"]) > 0.85
    assert float(last["confidence_out"]) < 0.15
    assert float(last["bound_out"]) < 0.6


# ---- interruption ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kill_at_a_random_moment_and_resume_gives_identical_weights(seed: int, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    options = ("--checkpoint-minutes", "0", "--kappa-start", "0.2", "--kappa-ramp", "0.5", "--resume")
    waits = random.Random(seed)
    for _ in range(4):
        process = subprocess.Popen(command(TINY, out, *options), env=QUIET, stdout=subprocess.DEVNULL)
        started = time.monotonic()
        while not (out / "state" / "last.pt").exists() and process.poll() is None and time.monotonic() - started < 60:
            time.sleep(0.005)
        time.sleep(waits.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = subprocess.run(command(TINY, out, *options), env=QUIET, capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    assert same_weights(finished, out)
    assert not list(out.rglob("*.part"))


def test_ctrl_c_saves_and_says_how_to_go_on(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    words = command(TINY, out, "--kappa-start", "0.2", "--kappa-ramp", "0.5", "--checkpoint-minutes", "60")
    with subprocess.Popen(words, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not (out / "batch.png").exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in said
    assert (out / "state" / "last.pt").exists()
    with pytest.raises(RunError, match="unfinished run; add --resume"):
        train(TINY, out)
    train(TINY, out, resume=True)
    assert same_weights(finished, out)


@pytest.mark.parametrize(("method", "stops"), [("ccu", (2,)), ("prood", (2, 3))])
def test_systems_of_several_parts_go_on_where_they_were_stopped(
    method: str, stops: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ProoD is stopped in its first training, then in its second."""
    monkeypatch.setattr("certood.assembly.FITTED", 1000)
    tiny = replace(TINY, method=method, components=5, epochs=1, discriminator_epochs=1, batch_size=100)
    whole = train(tiny, tmp_path / "whole")
    checkpoint = Journal.checkpoint
    for stop in stops:
        left = [stop]

        def stopped(self: Journal, state: dict[str, object], left: list[int] = left) -> None:
            checkpoint(self, state)
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "checkpoint", stopped)
            with pytest.raises(KeyboardInterrupt):
                train(tiny, tmp_path / "run", machine=EVERY_STEP, resume=True)
        if method == "prood":
            with pytest.raises(RunError, match="unfinished run; add --resume"):
                train(tiny, tmp_path / "run")
    if method == "prood":
        assert Run(tmp_path / "run").first.finished()
        assert not Run(tmp_path / "run").finished()
    train(tiny, tmp_path / "run", resume=True)
    assert same_weights(whole.folder, tmp_path / "run")


def test_a_prood_run_holds_all_that_it_answers_with(tmp_path: Path) -> None:
    tiny = replace(TINY, method="prood", epochs=1, discriminator_epochs=1)
    run = train(tiny, tmp_path / "run")
    first, both = (load_file(folder / "weights.safetensors") for folder in (run.first.folder, run.folder))
    shifted = {name: both[f"discriminator.{name}"] - weight for name, weight in first.items()}
    assert sorted(float(change.abs().max()) for change in shifted.values()) == pytest.approx([0.0] * 8 + [0.0, 3.0])
    assert run.first.load().class_names == ("inside", "outside")
    shutil.rmtree(run.first.folder)
    assert run.load().network(torch.zeros(2, 1, 28, 28)).exp().sum(1).tolist() == pytest.approx([1.0, 1.0])


def test_a_finished_run_is_left_alone(finished: Path) -> None:
    with pytest.raises(RunError, match="finished run"):
        train(TINY, finished)
    before = (finished / "weights.safetensors").stat().st_mtime_ns
    train(TINY, finished, resume=True)
    assert (finished / "weights.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunError, match="epochs 2 -> 3"):
        train(replace(TINY, epochs=3), finished, resume=True)


def test_a_kill_after_the_last_checkpoint_changes_nothing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("certood.training.test_accuracy", killed)
        with pytest.raises(KeyboardInterrupt):
            train(TINY, tmp_path / "run", machine=EVERY_STEP)
    train(TINY, tmp_path / "run", resume=True)
    assert same_weights(finished, tmp_path / "run")
    assert (tmp_path / "run" / "quantile.png").read_bytes() == (finished / "quantile.png").read_bytes()


def test_a_run_goes_on_only_with_the_images_it_began_with(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(TINY, out_set="mine", epochs=1)
    for seed in (0, 1):
        folder = tmp_path / str(seed) / "mine"
        folder.mkdir(parents=True)
        np.savez(folder / "train.npz", images=np.random.default_rng(seed).integers(0, 256, (100, 32, 32), np.uint8))
    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(own, tmp_path / "run", tmp_path / "0", EVERY_STEP)
    with pytest.raises(RunError, match="other images"):
        train(own, tmp_path / "run", tmp_path / "1", resume=True)
    assert train(own, tmp_path / "run", tmp_path / "0", resume=True).finished()


def test_processes_that_cannot_share_a_batch(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="3 processes cannot share batches of 64"):
        train(TINY, tmp_path / "run", machine=Machine(devices=3))
    with pytest.raises(RunError, match="CUDA devices"):
        train(TINY, tmp_path / "run", machine=Machine(device="cuda", devices=64))
    assert not (tmp_path / "run").exists()


# ---- the test split --------------------------------------------------------------------------------------------------


def folders(root: Path, classes: dict[str, tuple[str, ...]]) -> None:
    for split, names in classes.items():
        for number, name in enumerate(names):
            images = np.random.default_rng(number).integers(0, 256, (6, 28, 28), np.uint8)
            write_folder(root / split / name, images, None)


def test_training_images_do_not_pass_for_a_test_split(tmp_path: Path) -> None:
    folders(tmp_path / "data" / "mine", {".": ("ant", "bee", "cat")})
    train(replace(TINY, in_set="mine", epochs=1), tmp_path / "run", tmp_path / "data")
    assert "no test split" in (tmp_path / "run" / "card.md").read_text()
    assert Run(tmp_path / "run").load().class_names == ("ant", "bee", "cat")


def test_splits_with_different_classes_are_refused(tmp_path: Path) -> None:
    folders(tmp_path / "mine", {"train": ("ant", "bee", "cat"), "test": ("ant", "cat")})
    with pytest.raises(DataError, match="different classes: bee"):
        train(replace(TINY, in_set="mine", epochs=1), tmp_path / "run", tmp_path)


def test_a_corrupt_test_split_is_told(tmp_path: Path) -> None:
    folders(tmp_path / "mine", {"train": ("ant", "bee")})
    (tmp_path / "mine" / "test.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"test\.parquet"):
        train(replace(TINY, in_set="mine", epochs=1), tmp_path / "run", tmp_path)
    assert not (tmp_path / "run").exists()


# ---- what fails ------------------------------------------------------------------------------------------------------


def test_divergence_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"diverged.*--clip-gradient"):
        train(replace(TINY, lr=1e6, optimiser="sgd", epochs=3), tmp_path / "run")


def test_collapse_to_the_uniform_answer_is_told(tmp_path: Path) -> None:
    steep = replace(TINY, kappa=1e4, kappa_start=0, kappa_ramp=0, eps_start=0, eps_ramp=0, in_limit=0, epochs=7)
    with pytest.raises(TrainingFailed, match=r"uniform answer.*--kappa-ramp"):
        train(steep, tmp_path / "run")


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="no run folder"):
        train(TINY, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunError, match="disk is full"):
        train(TINY, tmp_path / "run", machine=EVERY_STEP)
    assert not (tmp_path / "run").exists()


def test_a_corrupt_checkpoint_is_told(finished: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.create(TINY)
    run.state.write_bytes(b"not a checkpoint")
    with pytest.raises(RunError, match=r"last\.pt is corrupt"):
        train(TINY, run.folder, resume=True)
    assert run.state.read_bytes() == b"not a checkpoint"


def test_weights_with_nan_or_of_another_network_are_refused(finished: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = load_file(finished / "weights.safetensors")
    with pytest.raises(NetworkError, match="does not fit"):
        train(replace(TINY, network="S", start_from=str(finished)), tmp_path / "run")
    weights["0.weight"][0] = float("nan")
    save_file(weights, tmp_path / "nan.safetensors")
    with pytest.raises(NetworkError, match="NaN"):
        train(replace(TINY, start_from=str(tmp_path / "nan.safetensors")), tmp_path / "run")
    (tmp_path / "broken.safetensors").write_bytes(b"12345678")
    with pytest.raises(NetworkError, match="cannot read"):
        train(replace(TINY, start_from=str(tmp_path / "broken.safetensors")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_can_start_from_another(finished: Path, tmp_path: Path) -> None:
    train(replace(TINY, start_from=str(finished), epochs=1), tmp_path / "second")
    first = log_of(finished)[0]
    second = log_of(tmp_path / "second")[0]
    assert float(second["loss_in"]) < float(first["loss_in"])


def test_divergence_of_the_last_step_is_told(tmp_path: Path) -> None:
    last = replace(TINY, lr=1e38, optimiser="sgd", epochs=1, batch_size=300)
    with pytest.raises(TrainingFailed, match="diverged"):
        train(last, tmp_path / "run")


@pytest.mark.slow
def test_real_images(images: Path, tmp_path: Path) -> None:
    small = replace(recipe("mnist", epochs=1), in_limit=2000, out_limit=2000)
    run = train(small, tmp_path / "run", data=images)
    assert "accuracy on the test split" in (run.folder / "card.md").read_text()


def test_corrupt_out_images_are_skipped_listed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [png(image) for image in pictures(120, side=32)]
    records[17], records[90] = b"no picture", b""
    write_parquet(tmp_path / "data" / "mine" / "train.parquet", records, None)
    with monkeypatch.context() as patch:
        patch.setattr("certood.data.shards.LARGE", 0)
        patch.setattr("certood.data.adapting.DECODED_AT_ONCE", 0)
        streamed = replace(TINY, out_set="mine", out_limit=0, in_limit=64, batch_size=16)
        run = train(streamed, tmp_path / "streamed", tmp_path / "data", Machine(workers=1))
    assert (run.folder / "skipped.txt").read_text() == "17\n90\n"
    assert "| corrupt images of it that were skipped | 2 |" in (run.folder / "card.md").read_text()
    assert capsys.readouterr().err.count("is corrupt; such images are skipped and listed in") == 1
    run = train(replace(TINY, out_set="mine", out_limit=0, epochs=1), tmp_path / "decoded", tmp_path / "data")
    assert "| corrupt images of it that were skipped | 2 |" in (run.folder / "card.md").read_text()
