"""The command line: what it prints, its exit codes, one line for every error and nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from invented import invent

import certood
from certood.cli import main
from certood.recipes import RECIPES

GOLDEN = Path(__file__).parent / "golden"


def failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert said.out == ""
    lines = said.err.strip().splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("certood: ")
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["trian"],
            "no command is called 'trian'; there are demo, train, evaluate, report, reproduce, calibrate, certify, "
            "verify, data",
        ),
        (["train"], "the recipe comes first: certood train mnist|svhn|cifar10|demo|mnist-shapes --out RUN"),
        (["train", "mnist", "--epochs", "abc"], "epochs"),
        (["train", "mnist", "--method"], "method"),
        (["train", "mnist", "--out", "run", "--autoaugment", "svhn"], "colour"),
        (["train", "demo", "--out", "run", "--workers", "-1"], "workers"),
        (["train", "demo", "--scale", "paper", "--out", "run"], "no paper scale"),
        (["train", "mnits", "--out", "run"], "no recipe is called 'mnits'"),
        (["train", "mnist"], "--out"),
        (["train", "mnist", "--out", "run", "--quantile", "80"], "certood: quantile is a share between 0 and 1"),
        (["train", "demo", "--out", "run", "--device", "cpu", "--precision", "16-mixed"], "16-mixed needs a GPU"),
        (["train", "mnist", "--out", "run", "--quantile", "many"], "--quantile"),
        (["train", "mnist", "--out", "run", "--epochs", "0"], "epochs must be above 0"),
        (["train", "mnist", "--out", "run", "--eps", "8"], "divide 8-bit steps by 255"),
        (["train", "mnist", "--out", "run", "--method", "better"], "method"),
        (["train", "mnist", "--out", "run", "--scale", "huge"], "scale"),
        (["train", "mnist", "--out", "run", "--frobnicate"], "--frobnicate"),
        (["train", "mnist", "--out", "run", "--data", "nowhere"], "no data folder nowhere"),
        (["train", "demo", "--out", "run", "--network", "XXL"], "no network is called 'XXL'"),
        (["train", "demo", "--out", "run", "--in-set", "demo_photos"], "labels"),
        (["train", "demo", "--out", "run", "--out-set", "nothing_like_it"], "nothing_like_it"),
        (["train", "demo", "--out", "run", "--start-from", "nowhere"], "nowhere"),
        (["train", "demo", "--out", "run", "--sweep", "plain,good800"], "no system is called 'good800'"),
        (["train", "demo", "--out", "run", "--sweep", "plain", "--method", "oe"], "leave out --method"),
        (["train", "demo", "--out", "run", "--sweep", "plain", "--method=oe"], "leave out --method"),
        (["train", "svhn", "--scale", "paper", "--out", "run", "--sweep", "good80"], "starts good80 from CEDA"),
        (["train", "demo", "--out", "run", "--sweep", "plain", "--seeds", "0,x"], "seeds are whole numbers"),
        (["train", "demo", "--out", "run", "--sweep", "plain", "--devices", "2"], "one process"),
        (["train", "demo", "--out", "run", "--seeds", "0,1"], "are for a sweep"),
        (["train", "demo", "--out", "run", "--sweep", "plain+shapes"], "certood train demo-shapes"),
        (["reproduce", "mnits", "--out", "there"], "no recipe is called 'mnits'"),
        (["reproduce", "demo", "--out", "there", "--systems", "better"], "no system is called 'better'"),
        (["reproduce", "demo", "--out", "there", "--scale", "paper"], "no paper scale"),
        (["reproduce", "demo", "--out", "there", "--attack-samples", "0"], "at least 1"),
        (["data", "info", "minst"], "did you mean mnist"),
        (["data", "delete"], "no command is called data delete"),
        (["data", "prepare", "uniform_noise", "there"], "nothing to prepare"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in failing(arguments, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_mistake_reads_the_same_in_every_terminal(encoding: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "certood", "train", "mnist", "--out", str(tmp_path / "run"), "--quantile", "80"]
    settings = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"}
    said = subprocess.run(words, env=settings, capture_output=True, text=True)
    told = "quantile is a share between 0 and 1, not 80.0 (GOOD_80 is 0.8); see certood train --help"
    assert (said.returncode, said.stdout, said.stderr) == (2, "", f"certood: {told}\n")


def test_a_terminal_without_the_letters_of_a_path(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe",), rows=8, attacked=4)
    words = [sys.executable, "-m", "certood", "report", str(scores), "--out", str(tmp_path / "Übersicht")]
    said = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
    assert r"\xdcbersicht" in said.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_full_is_one_line(unbuffered: str) -> None:
    words = [sys.executable, "-m", "certood", "data", "list"]
    with Path("/dev/full").open("w") as full:
        settings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        said = subprocess.run(words, env=settings, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (said.returncode, said.stderr) == (2, "certood: the disk is full; free some space\n")


def test_data_that_does_not_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import numpy as np

    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    out = ["--out", str(tmp_path / "run"), "--data", str(tmp_path / "data")]
    (folder / "train.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    failing(["train", "demo", "--out-set", "mine", *out], capsys)
    (folder / "train.parquet").unlink()
    np.savez(folder / "train.npz", images=np.zeros((5, 28, 28, 7), np.uint8))
    failing(["train", "demo", "--out-set", "mine", *out], capsys)
    assert not (tmp_path / "run").exists()


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "certood demo" in capsys.readouterr().out
    main(["--version"])
    assert capsys.readouterr().out == f"certood {certood.__version__}\n"
    for words in (
        ["train"],
        ["train", "mnist"],
        ["evaluate"],
        ["reproduce"],
        ["demo"],
        ["data", "list"],
        ["data", "info"],
        ["data", "prepare"],
    ):
        with pytest.raises(SystemExit) as stop:
            main([*words, "--help"])
        assert stop.value.code == 0
        assert "xample: certood " in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["train", "mnist"], ["evaluate"], ["reproduce"], ["data"]], ids=" ".join)
def test_golden_help(words: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    shown = subprocess.run(
        [sys.executable, "-m", "certood", *words, "--help"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert max(map(len, shown.splitlines())) <= 80
    path = GOLDEN / f"help{'_'.join(['', *words])}.txt"
    if os.environ.get("CERTOOD_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert shown == path.read_text()


def test_the_defaults_in_help_follow_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    for words, shown in ((["svhn", "--scale", "paper"], "default: 900"), (["mnist", "--method", "oe"], "default: oe")):
        with pytest.raises(SystemExit):
            main(["train", *words, "--help"])
        assert shown in " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert set(RECIPES) == {"mnist", "mnist-shapes", "svhn", "cifar10", "demo"}


def test_data_list_and_info(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["data", "list"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    main(["data", "list", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {"mnist", "tiny_images", "demo_digits", "uniform_noise", "notmnist"} <= {row["name"] for row in rows}
    assert all(row["licence"] and row["how_to_get_it"] and row["splits"] for row in rows)
    main(["data", "info", "svhn", "--json"])
    assert json.loads(capsys.readouterr().out)["splits"] == {"train": 73257, "test": 26032}
    main(["data", "info", "svhn"])
    assert "73,257" in capsys.readouterr().out


def test_prepare_writes_what_can_be_read_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["data", "prepare", "demo_digits", str(tmp_path)])
    assert {path.name for path in (tmp_path / "demo_digits").iterdir()} == {"train.parquet", "test.parquet"}
    assert "test.parquet" in capsys.readouterr().out
