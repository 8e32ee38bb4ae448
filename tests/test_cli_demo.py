"""`certood demo`, made short: a line for each stage, a table of 80 columns, a report, and nothing done twice."""

from dataclasses import replace
from pathlib import Path

import pytest

from certood import cli_demo
from certood.cli import main
from certood.recipes import MethodName, Recipe, recipe


def short(name: str, method: MethodName) -> Recipe:
    return replace(recipe(name, method, epochs=3), in_limit=600, out_limit=600, batch_size=32, kappa=0.1, eps=0.02)


def test_the_demo_says_what_it_does_and_keeps_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_demo, "recipe", short)
    monkeypatch.setattr(cli_demo, "ATTACKED", 4)
    monkeypatch.setattr(cli_demo, "LIMIT", 40)
    main(["demo", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert [line[:6] for line in said.err.splitlines()] == [f"[{number}/5] " for number in range(1, 6)]
    assert max(map(len, said.out.splitlines()[:-1])) <= 80
    runs = [line.split()[0] for line in said.out[: said.out.index("\nAUC:")].splitlines() if line]
    assert runs[-3:] == ["plain", "oe", "good"]
    assert str(tmp_path / "report" / "index.html") in said.out
    assert (tmp_path / "report" / "index.html").is_file()

    made = [path for end in ("weights.safetensors", "*.csv") for path in tmp_path.rglob(end)]
    written = {path: path.stat().st_mtime_ns for path in made}
    main(["demo", "--out", str(tmp_path)])
    assert said.out == capsys.readouterr().out
    kept = [path for path in written if "report" not in path.parts]
    assert len(kept) == 3 * (1 + 1 + 5)  # weights, log, and scores of digits and four out-sets
    for path in kept:
        assert path.stat().st_mtime_ns == written[path], path
