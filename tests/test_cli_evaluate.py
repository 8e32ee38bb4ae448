"""`certood evaluate`: kills and full disks change nothing, mistakes are one line, tables fit, programs can read it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from test_cli import failing
from test_filing import FULL, contents, fault

from certood.cli import main
from certood.cli_evaluate import print_table
from certood.detectors import Softmax
from certood.metrics import Forms
from certood.paper import published
from certood.recipes import recipe
from certood.runs import Run
from certood.scores import ScoreFile, evaluated
from certood.summary import Cell, Summary, summaries

QUIET = {**os.environ, "OMP_NUM_THREADS": "1"}
FEW = ("--limit", "8", "--attack-samples", "4", "--batch-size", "4", "--out-sets", "demo_letters,uniform_noise")


def stopped(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The last line of a command that was stopped after it had begun."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr()
    assert stop.value.code == code
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.err.count("certood: ") == 1
    return said.err.splitlines()[-1]


# ---- interruption ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    main(["evaluate", str(runs / "oe"), str(runs / "plain"), "--out", str(out), "--eps", "0.05", *FEW])
    return out


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_kills_at_random_moments_change_nothing(seed: int, runs: Path, uninterrupted: Path, tmp_path: Path) -> None:
    words = ["evaluate", str(runs / "oe"), str(runs / "plain"), "--out", str(tmp_path), "--eps", "0.05", *FEW]
    command = [sys.executable, "-m", "certood", *words]
    waits = random.Random(seed)
    kills = 0
    for _ in range(3):
        process = subprocess.Popen(command, env=QUIET, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started, before = time.monotonic(), sum(path.stat().st_mtime_ns for path in tmp_path.rglob("*.*"))
        while process.poll() is None and time.monotonic() - started < 60:
            if sum(path.stat().st_mtime_ns for path in tmp_path.rglob("meta.json")) != before:
                break  # it has begun to write
            time.sleep(0.005)
        time.sleep(waits.uniform(0, 1))
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert kills
    last = subprocess.run(command, env=QUIET, capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    assert contents(tmp_path) == contents(uninterrupted)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(
    runs: Path, uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(runs / "oe"), str(runs / "plain"), "--out", str(tmp_path), "--eps", "0.05", *FEW]
    for at in (1, 14, 21):
        with fault(at, 9, FULL):
            assert "the disk is full; free some space" in stopped(words, capsys)
    main(words)
    capsys.readouterr()
    assert contents(tmp_path) == contents(uninterrupted)


def test_ctrl_c_says_how_to_go_on(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ScoreFile, "append", interrupted)
    words = ["evaluate", str(runs / "oe"), "--out", str(tmp_path), "--attack", "none", *FEW]
    assert stopped(words, capsys, code=130) == "certood: stopped; the same command goes on"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["numpy", "cuda", "cpu"],
)
def test_memory_that_runs_out_is_one_line(
    error: Exception, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(Softmax, "log_probs", full)
    words = ["evaluate", str(runs / "oe"), "--out", str(tmp_path), "--batch-size", "400"]
    assert "memory ran out with batches of 400; take a smaller --batch-size" in stopped(words, capsys)


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_finished_work_is_told_and_the_table_comes_again(
    runs: Path, uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(uninterrupted, tmp_path / "out")
    main(["evaluate", str(runs / "oe"), str(runs / "plain"), "--out", str(out), "--eps", "0.05", *FEW])
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"{what}: oe, plain finished before; weights, data and settings are the same"
        for what in ("demo_digits, clean", "demo_letters, eps 0.05", "uniform_noise, eps 0.05")
    ]
    lines = said.out.splitlines()
    assert lines[0].rstrip() == "in: demo_digits, eps 0.05"
    assert lines[1].split() == ["demo_letters", "uniform_noise"]
    assert lines[2].split() == ["run", "acc", *["AUC", "AAUC", "GAUC"] * 2]
    for line, summary in zip(lines[3:5], summaries(evaluated(out)), strict=True):
        numbers = [
            getattr(cell.aucs, form) for cell in summary.cells for form in ("clean", "adversarial", "guaranteed")
        ]
        assert line.split() == [summary.name, *(f"{100 * number:.1f}" for number in (summary.accuracy, *numbers))]
    assert lines[5].startswith(f"Scores are in {out}; this took ")
    assert len(lines) == 6
    main(["evaluate", str(runs / "oe"), "--out", str(out), "--eps", "0.05", "--seed", "1", "--attack", "quick", *FEW])
    assert (
        "oe is evaluated again, since attack, steps of the attack, seed, transfer from changed"
        in capsys.readouterr().err
    )


def test_json_is_the_summary(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(runs / "good"), "--out", str(tmp_path), "--attack", "none", "--json", *FEW])
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads(json.dumps([summary.to_json() for summary in summaries(evaluated(tmp_path))]))
    assert [(cell["attacked"], cell["aauc"], cell["gradients"]) for cell in said[0]["out_sets"]] == [(0, None, 0)] * 2


def test_without_an_attack_the_column_is_empty(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", str(runs / "good"), "--out", str(tmp_path), "--attack", "none", *FEW])
    assert capsys.readouterr().out.splitlines()[3].split()[3::3] == ["-", "-"]
    columns = ScoreFile(tmp_path / "good" / "0.02" / "demo_letters.csv").read()
    assert np.isnan(columns.adversarial).all()
    assert set(columns.attack) == {""}
    assert not list(tmp_path.glob("good/*/*.npy"))


def test_help_fits_and_has_an_example() -> None:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-m", "certood", "evaluate", "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "Example: certood evaluate runs/good runs/oe" in shown


# ---- the table -------------------------------------------------------------------------------------------------------


def summary(
    name: str, out_sets: tuple[str, ...], aauc: float | None, title: str = "GOOD_80", eps: float = 0.3
) -> Summary:
    cells = tuple(
        Cell(
            out_set, eps, 10, Forms(1.0, aauc, 0.05, 0), Forms(0.5, None, 1.0, 0), 0,
            published(title, "mnist", eps, out_set),
        )
        for out_set in out_sets
    )  # fmt: skip
    return Summary(name, title, "mnist", 10, 0.987, 0.9, cells, {})


def test_the_table_has_the_layout_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ("fashion_mnist", "emnist_letters", "cifar10", "uniform_noise")
    print_table([summary("good80", sets, 0.9), summary("mine", sets[:1], None, title="MINE")])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "in: mnist, eps 0.3",
        "                   fashion_mnist     emnist_letters            cifar10",
        "run       acc    AUC  AAUC  GAUC    AUC  AAUC  GAUC    AUC  AAUC  GAUC",
        "good80   98.7  100.0  90.0   5.0  100.0  90.0   5.0  100.0  90.0   5.0",
        "  paper  99.1   99.8  90.3  55.5   97.9  63.1   3.4  100.0  98.4  94.7",
        "mine     98.7  100.0     -   5.0",
        "                   uniform_noise",
        "run       acc    AUC  AAUC  GAUC",
        "good80   98.7  100.0  90.0   5.0",
        "  paper  99.1  100.0 100.0 100.0",
        "mine     98.7",
    ]


names = st.text("abcdefg_-[]:/0123456789", min_size=1, max_size=70)


@example(["run[bold]1"], ["permuted_pixels:a[b]"])
@example(["a-name-made-from-all-of-its-settings-lr0.1-eps0.3-kappa0.3-quantile0.8-" + end for end in "12"], ["svhn"])
@given(st.lists(names, min_size=1, max_size=3), st.lists(names, max_size=6, unique=True))
def test_no_line_of_a_table_is_too_long_and_no_run_is_left_out(names: list[str], out_sets: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr(sys.stdout, "write", lambda text: written.append(text))
        print_table([summary(name, tuple(out_sets), 0.9) for name in names])
    text = "".join(written)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("100.0  90.0   5.0") == len(names) * len(out_sets)
    assert all(name[:9] in text and name[-1] in text for name in names)
    assert out_sets == [] or all(name in text for name in names if len(name) < 40)


def test_two_radii_are_two_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([summary("a", ("cifar10",), 0.5, eps=0.3), summary("b", ("cifar10",), 0.5, eps=0.4)])
    assert capsys.readouterr().out.count("in: mnist, eps 0.") == 2


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name the run folders to evaluate: certood evaluate RUN... --out DIR"),
        (["RUN", "--eps", "0"], "eps is above 0 and at most 1, in units of the [0, 1] pixel range, not 0"),
        (["RUN", "--eps", "0.1", "8"], "not 8"),
        (["RUN", "--eps", "nan"], "not nan"),
        (["RUN", "--eps", "large"], "--eps"),
        (["RUN", "--attack", "strong"], "--attack"),
        (["RUN", "--attack-samples", "0"], "at least 1"),
        (["RUN", "--batch-size", "0"], "at least 1"),
        (["RUN", "--seed", "-1"], "a seed at least 0"),
        (["RUN", "--limit", "-1"], "a limit is 0 (all images) or more, not -1"),
        (["RUN", "--out-sets", "demo_lettres"], "did you mean demo_letters"),
        (["RUN", "--out-sets", "omniglot"], "To get it: Unpack"),
        (["RUN", "--out-sets", "uniform_noise, uniform_noise"], "two are alike"),
        (["RUN", "--data", "nowhere"], "there is no data folder nowhere"),
        (["RUN", "RUN"], "two are alike"),
        (["RUN", "--frobnicate"], "--frobnicate"),
        (["nowhere"], "nowhere is no run folder"),
        (["UNFINISHED"], "is not finished; go on with certood train"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    words: list[str],
    told: str,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    unfinished = Run(tmp_path / "unfinished")
    unfinished.create(recipe("demo"))
    places = {"RUN": str(runs / "oe"), "UNFINISHED": str(unfinished.folder)}
    assert told in failing(["evaluate", *(places.get(word, word) for word in words), "--out", "out"], capsys)
    assert not Path("out").exists()


def test_a_device_that_is_not_here(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    words = ["evaluate", str(runs / "oe"), "--out", str(tmp_path / "out"), "--device", "cuda"]
    assert "no CUDA device is here" in failing(words, capsys)


def test_scores_that_are_damaged_or_foreign(
    runs: Path, uninterrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(uninterrupted, tmp_path / "out")
    words = ["evaluate", str(runs / "oe"), str(runs / "plain"), "--out", str(out), "--eps", "0.05", *FEW]
    for name in ("demo_digits", "uniform_noise"):
        path = out / "oe" / ("0" if name == "demo_digits" else "0.05") / f"{name}.csv"
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b".", b"x", 1))
        assert f"{name}.csv is corrupt" in stopped(words, capsys)
        path.unlink()  # as it says
        main(words)
        assert path.read_bytes() == whole
        capsys.readouterr()
    (out / "oe" / "meta.json").write_text('{"format": 1, "files": {"0.05/uniform_noise": {}}}')
    assert "meta.json is not of this version" in failing(words, capsys)
    (out / "oe" / "meta.json").write_text("{")
    assert "cannot read" in failing(words, capsys)
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", Path("/dev/null/out")):
        assert str(place) in failing(["evaluate", str(runs / "oe"), "--out", str(place), *FEW], capsys)
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "images").touch()
    assert "images" in stopped(["evaluate", str(runs / "oe"), "--out", str(occupied), *FEW], capsys)
