"""Score files: what is written is read again, a cut anywhere costs one batch, and what is foreign is refused."""

import io
import json
import math
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certood.errors import CertoodError, ScoreError
from certood.scores import FORMAT, HEADER, Row, ScoreFile, Scores, evaluated

numbers = st.floats(allow_nan=False)


@st.composite
def made_up_row(draw: st.DrawFn) -> Row:
    score, adversarial, certified = sorted(draw(st.tuples(numbers, numbers, numbers)))
    return Row(
        index=draw(st.integers(0, 2**40)),
        label=draw(st.integers(-1, 200)),
        prediction=draw(st.integers(0, 200)),
        score=score,
        adversarial=draw(st.sampled_from([adversarial, math.nan])),
        certified=certified,
        attack=draw(st.sampled_from(["", "clean", "split-30/Peek", "transfer:run é [b]/MonotonePGD"])),
    )


rows_of_a_file = st.lists(made_up_row(), max_size=8, unique_by=lambda row: row.index)


def meta(**more: Any) -> dict[str, Any]:
    base = {"format": FORMAT, "title": "GOOD_80", "weights": "w", "in_set": "ins", "skipped": {}, "files": {}}
    return {**base, **more}


def known(eps: float, weights: str = "w", in_data: str = "d") -> dict[str, Any]:
    settings = {"weights": weights, "data": "d", "in-distribution data": in_data, "eps": eps}
    return {"settings": settings, "rows": 1, "gradients": 0, "seconds": 0.0}


# ---- rows ------------------------------------------------------------------------------------------------------------


@given(rows_of_a_file, st.integers(0, 8))
def test_rows_come_back_bit_for_bit(rows: list[Row], split: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = ScoreFile(Path(folder) / "deep" / "set.csv")
        file.keep(0)
        file.append(rows[:split])
        file.append(rows[split:])
        assert file.rows() == len(rows)
        columns = file.read()
    by_name = [np.asarray(getattr(columns, field.name)).tolist() for field in fields(Row)]
    assert repr([Row(*values) for values in zip(*by_name, strict=True)]) == repr(rows)  # NaN is NaN, -0.0 is not 0.0


@given(rows_of_a_file, st.data())
def test_a_file_cut_at_any_byte_is_repaired(rows: list[Row], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = ScoreFile(Path(folder) / "set.csv")
        file.keep(0)
        file.append(rows)
        whole = file.path.read_bytes()
        cut = data.draw(st.integers(len(HEADER), len(whole)))
        file.path.write_bytes(whole[:cut])
        left = file.rows()
        assert whole[:cut].count(b"\n") == left + 1
        file.keep(left)
        file.append(rows[left:])
        assert file.path.read_bytes() == whole


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    assert ScoreFile(tmp_path / "set.csv").rows() == 0
    with pytest.raises(ScoreError, match="No such file"):
        ScoreFile(tmp_path / "set.csv").read()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no score file"),
        (b"index,label\n0,1\n", "no score file"),
        (HEADER.encode() + b"0,1,1,0.5,,0.6\n", "corrupt"),
        (HEADER.encode() + b"0,1,1,0.5,,0.6,\n1,1,1", "corrupt"),
        (HEADER.encode() + b"0,1,1,high,,0.6,\n", "corrupt"),
        (HEADER.encode() + b"0,1,1,nan,,0.6,\n", "NaN"),
        (HEADER.encode() + b"0,1,1,0.5,,nan,\n", "NaN"),
        (HEADER.encode() + b"0,1,1,0.5,,0.4,\n", "corrupt .*does not hold for a row"),
        (HEADER.encode() + b"0,1,1,0.5,0.4,0.6,\n", "corrupt .*does not hold for a row"),
        (HEADER.encode() + b"0,1,1,0.5,0.7,0.6,\n", "corrupt .*does not hold for a row"),
        (HEADER.encode() + b"0,1,1,0.5,,0.6,\n0,1,1,0.5,,0.6,\n", "corrupt .*twice"),
        (HEADER.encode() + b"99999999999999999999,1,1,0.5,,0.6,\n", "corrupt"),
        (HEADER.encode() + b"\xff\xfe\n", "corrupt"),
        (HEADER.encode() + b"\0\0\0\0\n", "corrupt"),
    ],
)
def test_what_is_no_score_file_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    file = ScoreFile(tmp_path / "set.csv")
    file.path.write_bytes(content)
    with pytest.raises(ScoreError, match=rf"set\.csv.*{told}"):
        file.read()
    file.keep(file.rows())  # and cutting it raises nothing of its own


# ---- points ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 200))
def test_points_in_batches_are_one_array_whatever_was_left_behind(count: int, batch: int, garbage: int) -> None:
    points = np.random.default_rng(count).random((count, 1, 2, 3), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        file = ScoreFile(Path(folder) / "set.csv")
        for at in range(0, count, batch):
            file.append_points(points[at : at + batch], at, count)
            with file.points.open("ab") as left_by_a_kill:
                left_by_a_kill.write(b"\xff" * garbage)
        file.append_points(points[at:], at, count)
        expected = io.BytesIO()
        np.save(expected, points)
        assert file.points.read_bytes() == expected.getvalue()


def test_beginning_again_forgets_the_points(tmp_path: Path) -> None:
    file = ScoreFile(tmp_path / "set.csv")
    file.keep(0)
    file.append_points(np.zeros((1, 2), np.float32), 0, 1)
    file.keep(0)
    assert not file.points.exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    file = ScoreFile(tmp_path / "set.csv")
    for path in (file.path, file.points):
        path.symlink_to("/dev/full")
    with pytest.raises(ScoreError, match=r"set\.csv: the disk is full; free some space; then the same command goes on"):
        file.append([Row(0, 0, 0, 0.0, 0.0, 0.0, "")])
    with pytest.raises(ScoreError, match=r"set\.npy: the disk is full"):
        file.append_points(np.zeros((1, 2), np.float32), 0, 1)


# ---- the folder of a run ---------------------------------------------------------------------------------------------


def test_only_files_of_these_weights_and_in_scores_are_current(tmp_path: Path) -> None:
    scores = Scores(tmp_path / "run")
    assert scores.current() == {}
    files = {
        "0/ins": known(0.0),
        "0.3/outs": known(0.3),
        "0.1/permuted_pixels:a/b": known(0.1),
        "0.3/other_weights": known(0.3, weights="v"),
        "0.3/other_in_set": known(0.3, in_data="e"),
    }
    scores.write_meta(meta(files=files))
    assert set(scores.current()) == {(0.0, "ins"), (0.3, "outs"), (0.1, "permuted_pixels:a/b")}
    scores.write_meta(meta(files=files, weights="v"))
    assert scores.current() == {}  # the in-distribution is still to be scored with them


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"3",
        b"{}",
        json.dumps(meta(format=FORMAT + 1)).encode(),
        json.dumps(meta(files=[])).encode(),
        json.dumps(meta(files={"0.3/x": {}})).encode(),
        json.dumps(meta(files={"0.3/x": {**known(0.3), "settings": None}})).encode(),
        json.dumps(meta(files={"0.3/x": {**known(0.3), "rows": "9"}})).encode(),
        json.dumps(meta(files={"0.3/x": {**known(0.3), "gradients": None}})).encode(),
        json.dumps(meta(files={"0.3/x": known("0.3")})).encode(),  # type: ignore[arg-type]
        json.dumps(meta(title=None)).encode(),
        json.dumps(meta(skipped=None)).encode(),
        json.dumps(meta(skipped={"omniglot": None})).encode(),
        json.dumps({"format": FORMAT, "files": {}}).encode(),
    ],
)
def test_foreign_meta_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_bytes(content)
    for use in (Scores(tmp_path).meta, Scores(tmp_path).current):
        with pytest.raises(ScoreError, match=r"meta\.json"):
            use()


def test_folders_of_scores(tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match="there is no folder"):
        evaluated(tmp_path / "nowhere")
    (tmp_path / "images").mkdir()
    with pytest.raises(ScoreError, match="holds no scores; certood evaluate RUN --out"):
        evaluated(tmp_path)
    for name in ("b", "a"):
        Scores(tmp_path / name).write_meta(meta())
    assert [scores.name for scores in evaluated(tmp_path)] == ["a", "b"]
    (tmp_path / "file").touch()
    with pytest.raises(CertoodError, match="cannot write"):
        Scores(tmp_path / "file" / "run").write_meta(meta())
