"""The numbers of a summary are those that anyone would compute from the rows, and unfinished rows have none."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, roc_auc_score
from test_scores import known, meta

from certood.errors import ScoreError
from certood.paper import Published
from certood.scores import Row, Scores
from certood.summary import summaries, summarise

IN, OUT = 40, 30


def filed(folder: Path, attacked: int = 12, ties: bool = False) -> Scores:
    """Scores of a run on MNIST against two sets, in whole numbers if there are to be ties."""
    draw = np.random.default_rng(0)
    scores = Scores(folder / "good")
    files: dict[str, Any] = {}
    for eps, name, count in ((0.0, "mnist", IN), (0.3, "fashion_mnist", OUT), (0.4, "mine", OUT)):
        file = scores.file(eps, name)
        file.keep(0)
        for index in range(count):
            score, rise = float(draw.normal(3 * (eps == 0), 2)), float(draw.random()) * (eps > 0)
            if ties:
                score = float(round(score))
            adversarial = np.nan if eps and index >= attacked else score + rise
            certified = np.inf if eps == 0.4 else score + 2 * rise
            label, answer = draw.integers(3, size=2).tolist()
            attack = "" if np.isnan(adversarial) or not eps else "clean" if index % 3 else "contrast/Peek"
            file.append([Row(index, label, answer, score, adversarial, certified, attack)])
        files[f"{eps:g}/{name}"] = {**known(eps), "rows": count, "gradients": 7}
    scores.write_meta(meta(in_set="mnist", files=files, skipped={"omniglot": "Unpack it."}))
    return scores


def columns(scores: Scores, eps: float, name: str) -> dict[str, NDArray[np.float64]]:
    rows = list(csv.DictReader(scores.file(eps, name).path.read_text().splitlines()))
    return {
        key: np.array([float(row[key] or "nan") for row in rows])
        for key in ("label", "prediction", "score", "adversarial", "certified")
    }


def test_the_numbers_are_those_of_scikit_learn(tmp_path: Path) -> None:
    scores = filed(tmp_path)
    summary = summarise(scores)
    inside = columns(scores, 0.0, "mnist")
    assert (summary.name, summary.title, summary.in_set, summary.images) == ("good", "GOOD_80", "mnist", IN)
    assert summary.accuracy == pytest.approx(accuracy_score(inside["label"], inside["prediction"]))
    assert summary.confidence == pytest.approx((1 / (1 + np.exp(-inside["score"]))).mean())
    assert [(cell.eps, cell.out_set) for cell in summary.cells] == [(0.3, "fashion_mnist"), (0.4, "mine")]
    for cell in summary.cells:
        outside = columns(scores, cell.eps, cell.out_set)
        assert (cell.images, cell.gradients, cell.aucs.attacked) == (OUT, 7, 12)
        for form, name in (("clean", "score"), ("adversarial", "adversarial"), ("guaranteed", "certified")):
            outs = outside[name][~np.isnan(outside[name])]
            assert len(outs) == (12 if name == "adversarial" else OUT)
            truth = np.repeat([1, 0], [IN, len(outs)])
            expected = roc_auc_score(truth, np.clip(np.concatenate([inside["score"], outs]), -1e9, 1e9))
            assert getattr(cell.aucs, form) == pytest.approx(expected)
            assert getattr(cell.confidences, form) == pytest.approx((1 / (1 + np.exp(-outs))).mean())
        gaps = (outside["certified"] - outside["adversarial"])[:12]
        assert cell.gap == np.median(gaps)
        assert list(cell.winners.items()) == [("clean", 8), ("contrast/Peek", 4)]
    assert summary.cells[0].paper == Published(99.1, 99.8, 90.3, 55.5)
    assert summary.cells[1].paper is None


def test_ties_count_for_nothing(tmp_path: Path) -> None:
    scores = filed(tmp_path, ties=True)
    ins, outs = (columns(scores, *which)["score"] for which in ((0.0, "mnist"), (0.3, "fashion_mnist")))
    assert (ins[:, None] == outs).any()
    assert summarise(scores).cells[0].aucs.clean == pytest.approx((ins[:, None] > outs).mean())


def test_a_gap_without_a_guarantee_is_no_number_in_json(tmp_path: Path) -> None:
    first, second = json.loads(json.dumps(summarise(filed(tmp_path)).to_json(), allow_nan=False))["out_sets"]
    assert 0 < first["median_gap"] < 1
    assert second["median_gap"] is None
    assert first["winning_attacks"] == {"clean": 8, "contrast/Peek": 4}


def test_json_says_the_same(tmp_path: Path) -> None:
    (summary,) = summaries([filed(tmp_path, attacked=0)])
    said = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert said["accuracy"] == summary.accuracy
    assert said["skipped"] == {"omniglot": "Unpack it."}
    first, second = said["out_sets"]
    assert (first["auc"], first["aauc"], first["gauc"]) == (summary.cells[0].aucs.clean, None, first["gauc"])
    assert (first["attacked"], first["mean_adversarial_confidence"]) == (0, None)
    assert (first["winning_attacks"], first["median_gap"]) == ({}, None)
    assert first["paper"] == {"accuracy": 99.1, "auc": 99.8, "aauc": 90.3, "gauc": 55.5}
    assert (second["gauc"], second["mean_bound"], second["paper"]) == (0.0, 1.0, None)


@pytest.mark.parametrize(("eps", "name"), [(0.0, "mnist"), (0.3, "fashion_mnist")])
def test_what_is_not_finished_has_no_numbers(eps: float, name: str, tmp_path: Path) -> None:
    scores = filed(tmp_path)
    path = scores.file(eps, name).path
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(ScoreError, match=rf"{name}\.csv has \d+ of \d+ rows: its evaluation was not finished; run it"):
        summarise(scores)
    path.write_bytes(whole[:-3])
    with pytest.raises(ScoreError, match=rf"{name}\.csv"):
        summarise(scores)
    path.unlink()
    with pytest.raises(ScoreError, match=rf"cannot read .*{name}\.csv"):
        summarise(scores)


def test_scores_without_those_of_the_in_distribution(tmp_path: Path) -> None:
    scores = filed(tmp_path)
    scores.write_meta({**scores.meta(), "weights": "others"})
    with pytest.raises(ScoreError, match="no scores of mnist: its evaluation was not finished"):
        summarise(scores)
    with pytest.raises(ScoreError, match="holds no scores"):
        summarise(Scores(tmp_path / "nowhere"))


def test_reading_scores_does_not_wait_for_torch() -> None:
    code = "import certood.summary, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
