"""Documentation that runs: every code block of README and docs, document by document, and every docstring example."""

import doctest
import importlib
import pkgutil
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import pictures, write_folder
from PIL import Image

import certood
from certood.cli import COMMANDS, main

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WORDS = {"", "bibtex"}  # languages of blocks that are no programs

# What is added to a command so that it takes a moment: a later option overrides an earlier one.
SHORTER = {
    "train": ("--epochs", "1", "--in-limit", "32", "--out-limit", "32", "--batch-size", "16", "--network", "XS"),
    "evaluate": ("--attack", "quick", "--attack-samples", "4", "--limit", "16"),
}
LONG = {"demo", "reproduce"}  # tested where they are at home
SETS = {  # stand-ins for the sets that documents name: size, colour, classes
    **dict.fromkeys(("mnist", "fashion_mnist"), (28, False, 10)),
    **dict.fromkeys(("emnist_letters", "nist_letters"), (28, False, 26)),
    **dict.fromkeys(("svhn", "cifar10", "cifar100", "tiny_imagenet", "lsun_classroom"), (32, True, 10)),
    **dict.fromkeys(("omniglot", "notmnist"), (28, False, 10)),
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader of the documents sits: a folder with `images`, and no network."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    for seed, (name, (side, colour, classes)) in enumerate(SETS.items()):
        for split in ("train", "test"):
            images = pictures(40, colour=colour, side=side, seed=seed)
            (tmp_path / "images" / name).mkdir(parents=True, exist_ok=True)
            np.savez(tmp_path / "images" / name / f"{split}.npz", images=images, labels=np.arange(40) % classes)
    for split in ("train", "test"):
        write_folder(tmp_path / "images" / "parts" / split, pictures(40, colour=True), [at % 2 for at in range(40)])
        write_folder(tmp_path / "images" / "clutter" / split, pictures(40, colour=True, seed=1), None)
    return tmp_path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_runs(path: Path, desk: Path) -> None:
    """Its blocks in order, as one program and one shell."""
    names: dict[str, Any] = {"__name__": "documentation"}
    for language, text in BLOCK.findall(path.read_text()):
        if language == "python":
            exec(compile(text, path.name, "exec"), names)
        elif language == "bash":
            for line in text.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    _run(words, desk)
        else:
            assert language in WORDS, f"{path.name} has a block of {language}, which no test runs"


def _run(words: list[str], desk: Path) -> None:
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), words
    elif words[0] == "python":
        assert (REPOSITORY / words[1]).is_file(), words
    else:
        assert words[0] == "certood", f"no test runs {shlex.join(words)}"
        assert words[1] in COMMANDS, words
        for word in words:
            if word.endswith(".png") and not (desk / word).exists():
                Image.fromarray(pictures(1, colour=True, side=32)[0]).save(desk / word)
        if words[1] not in LONG:
            main([*words[1:], *SHORTER.get(words[1], ())])


def test_nothing_is_left_to_fill_in() -> None:
    """Names in capitals are words of the program, as CERTOOD_DATA is."""
    program = "".join(path.read_text() for path in (REPOSITORY / "certood").rglob("*.py"))
    for path in DOCUMENTS:
        for name in re.findall(r"\b(?:[A-Z]+_[A-Z_]+|TODO|TBD|FIXME|XXX)\b", path.read_text()):
            assert "_" in name, f"{path.name}: {name}"
            assert name in program, f"{path.name}: nothing is called {name}"


@pytest.mark.slow
def test_what_a_training_costs_is_counted() -> None:
    """Operations and bytes to reduce in docs/scale.md are those of the networks as they are now."""
    names = runpy.run_path(str(REPOSITORY / "benchmarks" / "scale.py"))
    text = (REPOSITORY / "docs" / "scale.md").read_text()
    for training in names["TRAININGS"]:
        cost = names["counted"](training)
        rows = [row.split(" | ") for row in text.splitlines() if row.startswith(f"| {training.name} |")]
        assert len(rows) == len(names["GPUS"])
        for row in rows:
            assert float(row[1]) == pytest.approx(training.epochs * training.images * cost.flops, rel=0.1)
        assert float(rows[1][-1].strip("| ")) == pytest.approx(2 * 7 / 8 * 4 * cost.weights / 1e6, abs=1)


@pytest.mark.parametrize("name", [module.name for module in pkgutil.walk_packages(certood.__path__, "certood.")])
def test_docstring_examples(name: str) -> None:
    if not name.endswith("__main__"):
        module = importlib.import_module(name)
        assert doctest.testmod(module).failed == 0


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
