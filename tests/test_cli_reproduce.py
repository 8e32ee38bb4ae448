"""`certood reproduce`: from nothing to a report and a table, and again without doing anything twice."""

from pathlib import Path

import pytest

from certood.cli import main


@pytest.mark.slow
def test_a_table_in_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    words = ["reproduce", "demo", "--out", str(out), "--epochs", "1", "--systems", "plain,oe", "--seeds", "0,1"]
    words += ["--attack", "quick", "--attack-samples", "4", "--limit", "20", "--device", "cpu"]
    main(words)
    said = capsys.readouterr()
    assert [line.split("min")[1].strip() for line in said.err.splitlines() if line.startswith("[")] == [
        *("training plain, 1 epochs", "training oe, 1 epochs"),
        *("training plain-seed1, 1 epochs", "training oe-seed1, 1 epochs"),
        *("evaluating 2 runs of seed 0 against each other", "evaluating 2 runs of seed 1 against each other"),
        "writing the report",
    ]
    assert (out / "report" / "index.html").is_file()
    table = (out / "table.md").read_text()
    assert [line.split(" | ")[0] for line in table.splitlines()[4:]] == ["| plain", "| oe"]
    assert "±" in table
    assert (
        (out / "table.csv")
        .read_text()
        .startswith("system,eps,out_set,number,mean,deviation\nplain,0,,seeds,2.0000,\nplain,0,,accuracy,")
    )
    weights = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/weights.safetensors")}
    scores = {path: path.stat().st_mtime_ns for path in out.glob("scores/*/*/*.csv")}
    (out / "table.md").unlink()
    main(words)
    assert (out / "table.md").read_text() == table
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert {path: path.stat().st_mtime_ns for path in scores} == scores
    assert capsys.readouterr().err.count("is there") == 4


def test_what_is_not_here_is_told_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "demo", "--out", str(tmp_path / "demo"), "--systems", "plain,oe", "--data", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out-set", "nowhere"])
    assert ended.value.code == 2
    assert "nowhere" in capsys.readouterr().err
    assert not (tmp_path / "demo" / "runs").exists()
