"""Run folders: what is written is read again, what is foreign is refused, and nothing in them can run code."""

import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from certood import networks
from certood.errors import NetworkError, RunError
from certood.recipes import recipe
from certood.runs import Run, digest, load_weights

RECIPE = replace(recipe("demo"), network="XS")


def finished(folder: Path) -> Run:
    run = Run(folder)
    run.create(RECIPE)
    network = networks.build("XS", 1, 28, 3).to(memory_format=torch.channels_last)
    run.finish(network.state_dict(), ("a", "b", "c"), "# card\n")
    return run


def test_weights_and_classes_come_back(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    network, loaded, names = run.load()
    assert (loaded, names) == (RECIPE, ("a", "b", "c"))
    assert network[-1].out_features == 3
    assert not (run.folder / "state").exists()


def test_log_leaves_out_what_is_no_number(tmp_path: Path) -> None:
    run = Run(tmp_path)
    names = ("epoch", "seconds", "lr", "kappa", "eps", "loss", "loss_in", "loss_out", "accuracy", "confidence_out")
    run.write_log([{**dict.fromkeys(names, 0.5), "bound_out": float("nan")}])
    assert (tmp_path / "log.csv").read_text().splitlines()[1] == ",".join(["0.5"] * 10) + ","


def test_a_checkpoint_that_wants_to_run_code_is_refused(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    run = Run(tmp_path / "run")
    run.create(RECIPE)
    for save in (
        lambda: torch.save({"step": Payload()}, run.state),
        lambda: run.state.write_bytes(pickle.dumps(Payload())),
    ):
        save()
        with pytest.raises(RunError, match="corrupt"):
            run.read_state(torch.device("cpu"))
    trained = finished(tmp_path / "finished")
    for save in (
        lambda: torch.save(Payload(), trained.weights),
        lambda: trained.weights.write_bytes(pickle.dumps(Payload())),
    ):
        save()
        with pytest.raises(RunError, match="cannot be read"):
            trained.load()
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_that_is_a_bomb_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.create(RECIPE)
    with zipfile.ZipFile(run.state, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("last/data.pkl", bytes(2**24))
    with pytest.raises(RunError, match="it is compressed, which no checkpoint is"):
        run.read_state(torch.device("cpu"))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"name": "x", "eps": "big"}'])
def test_a_broken_recipe_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(RunError, match=r"recipe\.json"):
        Run(tmp_path).recipe()


def test_broken_or_foreign_weights(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    content = run.weights.read_bytes()
    for broken in (b"", content[:100], content[: len(content) // 2], b"\xff" * 64):
        run.weights.write_bytes(broken)
        with pytest.raises((RunError, NetworkError), match="cannot"):
            run.load()
    for class_names in ("5", "null", "true", "x"):
        save_file(load_file(finished(tmp_path / class_names).weights), run.weights, {"class_names": class_names})
        with pytest.raises(RunError, match="cannot be read"):
            run.load()
    unfinished = Run(tmp_path / "unfinished")
    unfinished.create(RECIPE)
    with pytest.raises(RunError, match="not finished"):
        unfinished.load()
    with pytest.raises(NetworkError, match="cannot read"):
        load_weights(networks.build("XS", 1, 28, 3), tmp_path / "nowhere")


def test_digests_see_every_bit_and_no_layout() -> None:
    weights = {"a": torch.rand(2, 3, 4, 4), "b": torch.zeros(3)}
    same = {
        name: w.to(memory_format=torch.channels_last) if w.ndim == 4 else w for name, w in reversed(weights.items())
    }
    assert digest(weights) == digest(same)
    changed = {**weights, "b": torch.tensor([0.0, -0.0, 0.0])}
    assert digest(weights) != digest(changed)
    assert digest(weights) != digest({**weights, "b": torch.zeros(3, 1)})


def test_a_folder_whose_making_was_killed_can_be_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("certood.runs.write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            Run(tmp_path / "run").create(RECIPE)
    for resume in (False, True):
        assert not Run(tmp_path / "run").prepare(RECIPE, resume)
    Run(tmp_path / "run").create(RECIPE)
    assert Run(tmp_path / "run").recipe() == RECIPE
