"""A contest: which runs meet which sets at which radii, what is filed about it, and what stops it before it begins."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import pictures, write_folder
from test_filing import Heard, contents

from certood import networks
from certood.assembly import detector_of
from certood.boxes import Box
from certood.contest import OUT_SETS, Contest
from certood.data import encoded
from certood.errors import CertoodError, DataError, RunError, ScoreError
from certood.evaluation import Plan
from certood.paper import ADDITIONAL, MAIN
from certood.recipes import Recipe, recipe
from certood.runs import Run, digest
from certood.scores import Scores

CPU = torch.device("cpu")
CLEAN = Plan("none", attacked=3, batch=4)
TWO = ("uniform_noise", "demo_letters")


def contest(
    out: Path,
    folders: Sequence[Path],
    plan: Plan = CLEAN,
    eps: tuple[float, ...] = (),
    out_sets: tuple[str, ...] = TWO,
    limit: int | None = 6,
    data: Path | None = None,
) -> tuple[list[Scores], Heard]:
    heard = Heard()
    return Contest(out, data, plan, eps, out_sets, limit, CPU, heard).run(folders), heard


def untrained(folder: Path, chosen: Recipe, class_names: Sequence[str] = tuple("0123456789")) -> Path:
    """A finished run whose weights are random."""
    run = Run(folder)
    run.create(replace(chosen, network="XS"))
    network = networks.build("XS", chosen.channels, chosen.size, len(class_names))
    run.finish(network.state_dict(), class_names, "# card\n")
    return folder


# ---- what is filed ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Scores]:
    plan = Plan("quick", attacked=4, batch=4)
    return contest(tmp_path_factory.mktemp("scores"), [runs / "good", runs / "oe"], plan, out_sets=(), limit=10)[0]


def test_by_default_the_sets_of_the_in_distribution_at_the_radius_of_the_recipe(both: list[Scores], runs: Path) -> None:
    assert OUT_SETS["mnist"] == MAIN["mnist"] + ADDITIONAL["mnist"]
    for scores, title in zip(both, ("GOOD_100", "OE"), strict=True):
        meta, trained = scores.meta(), Run(runs / scores.name).load()
        expected = {"0/demo_digits"} | {f"0.02/{name}" for name in OUT_SETS["demo_digits"]}
        assert set(meta["files"]) == expected
        assert {str(path.relative_to(scores.folder)) for path in scores.folder.rglob("*.csv")} == {
            f"{name}.csv" for name in expected
        }
        assert (meta["name"], meta["title"], meta["in_set"]) == (scores.name, title, "demo_digits")
        assert meta["weights"] == digest(trained.network.state_dict())
        assert meta["classes"] == list("0123456789")
        assert meta["skipped"] == {}
        assert set(meta["versions"]) == {"certood", "torch", "python"}
        assert meta["files"]["0/demo_digits"]["attacked"] == 0


def points_that_hold(scores: Scores, run: Path) -> int:
    """How many of the points that are filed lie in their box and score, by the trained network, what the row says."""
    detector, attacked = detector_of(Run(run).load(), CPU), 0
    for (eps, name), known in scores.current().items():
        columns, first = scores.file(eps, name).read(), known["attacked"]
        kept = np.load(scores.folder.parent / "images" / known["images"])
        clean = torch.from_numpy(kept).float() / (255 if kept.dtype == np.uint8 else 1)
        rows, box = len(clean), Box.around(clean, eps)
        with torch.no_grad():
            assert columns.score[:rows] == pytest.approx(detector.score(clean).numpy(), abs=1e-4)
            if eps:
                assert columns.certified[:rows] == pytest.approx(detector.score_upper(box).numpy(), abs=1e-4)
            if first:
                points = torch.from_numpy(np.load(scores.file(eps, name).points))
                assert box.contains(points).all()
                assert columns.adversarial[:first] == pytest.approx(detector.score(points).numpy(), abs=1e-4)
        attacked += first
    return attacked


def test_a_filed_point_is_in_its_box_and_scores_what_the_row_says(both: list[Scores], runs: Path) -> None:
    for scores in both:
        assert points_that_hold(scores, runs / scores.name) == 4 * len(OUT_SETS["demo_digits"])


def test_other_runs_can_only_help_an_attack(runs: Path, tmp_path: Path) -> None:
    plan, sets = Plan("standard", attacked=6, batch=6), ("demo_letters", "demo_photos")
    (alone,), _ = contest(tmp_path / "alone", [runs / "plain"], plan, (0.05,), sets, 8)
    (joined, other), _ = contest(tmp_path / "joined", [runs / "plain", runs / "oe"], plan, (0.05,), sets, 8)
    for name in sets:
        before, after = (scores.file(0.05, name).read() for scores in (alone, joined))
        assert np.array_equal(before.index, after.index)
        assert (after.adversarial[:6] >= before.adversarial[:6]).all()
    assert points_that_hold(joined, runs / "plain") == points_that_hold(other, runs / "oe") == 2 * 6
    settings = joined.meta()["files"]["0.05/demo_photos"]["settings"]
    assert settings["transfer from"] == {"oe": other.meta()["weights"]}


def test_radii_are_those_asked_for_or_those_of_all_recipes(runs: Path, tmp_path: Path) -> None:
    (scores,), heard = contest(tmp_path / "asked", [runs / "oe"], eps=(0.1, 0.05, 0.1))
    assert heard.lines == []
    assert {eps for eps, _ in scores.current()} == {0.0, 0.05, 0.1}
    clean = untrained(tmp_path / "clean", replace(recipe("demo"), eps=0.0))
    (one, other), _ = contest(tmp_path / "recipes", [runs / "oe", clean])
    assert set(one.current()) == set(other.current())
    assert {eps for eps, _ in one.current()} == {0.0, 0.02}
    columns = one.file(0.0, "uniform_noise").read()
    assert np.array_equal(columns.score, columns.certified)


def test_weights_that_changed_are_told_and_leave_nothing_current(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "plain", tmp_path / "run")
    (scores,), _ = contest(tmp_path / "out", [run])
    shutil.copy(runs / "oe" / "weights.safetensors", run / "weights.safetensors")
    _, heard = contest(tmp_path / "out", [run], out_sets=("demo_letters",))
    assert heard.lines == [
        "demo_digits, clean: run is evaluated again, since weights changed",
        "demo_letters, eps 0.02: run is evaluated again, since weights changed",
    ]
    assert set(scores.current()) == {(0.0, "demo_digits"), (0.02, "demo_letters")}
    assert scores.file(0.02, "uniform_noise").path.exists()


def test_another_limit_is_told(runs: Path, tmp_path: Path) -> None:
    contest(tmp_path, [runs / "oe"])
    (scores,), heard = contest(tmp_path, [runs / "oe"], out_sets=("uniform_noise",), limit=7)
    assert heard.lines == [
        "demo_digits, clean: oe is evaluated again, since data, in-distribution data changed",
        "uniform_noise, eps 0.02: oe is evaluated again, since data, in-distribution data changed",
    ]
    assert (0.02, "demo_letters") not in scores.current()  # attacked with other in-scores in view
    _, heard = contest(tmp_path, [runs / "oe"], out_sets=("uniform_noise",), limit=7)
    assert [line.partition(": ")[2] for line in heard.lines] == [
        "oe finished before; weights, data and settings are the same"
    ] * 2


# ---- sets ------------------------------------------------------------------------------------------------------------


def arrays(folder: Path, *names: str, split: str = "test", colour: bool = False) -> Path:
    for seed, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        images = pictures(6, colour=colour, side=28, seed=seed)
        np.savez(folder / name / f"{split}.npz", images=images, labels=np.arange(6))
    return folder


def test_what_is_not_here_is_said_and_filed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "from_hub", lambda *_: None)
    data = arrays(tmp_path / "data", "mnist", "nist_letters", "fashion_mnist")
    arrays(data, "tiny_images", split="train")
    run = untrained(tmp_path / "run", recipe("mnist", "plain"))
    (scores,), heard = contest(tmp_path / "out", [run], out_sets=(), data=data)
    assert {name for eps, name in scores.current() if eps} == {
        *("fashion_mnist", "nist_letters", "tiny_images", "uniform_noise")
    }
    skipped = scores.meta()["skipped"]
    assert list(skipped) == ["emnist_letters", "cifar10", "omniglot", "notmnist"]
    assert skipped["omniglot"].startswith("Unpack images_evaluation.zip")
    assert heard.lines[0].startswith("without emnist_letters, with nist_letters in its place. To get it: From the hub")
    assert heard.lines[2] == f"without omniglot. To get it: {skipped['omniglot']}"
    assert len(heard.lines) == 4


def test_a_set_of_ones_own_is_met_with_what_it_was_trained_against_and_noise(tmp_path: Path) -> None:
    for name in ("mine", "yours"):
        for split in ("train", "test"):
            write_folder(tmp_path / "data" / name / split, pictures(4), [0, 0, 1, 1])
    chosen = replace(recipe("demo"), in_set="mine", out_set="yours")
    run = untrained(tmp_path / "run", chosen, ("class0", "class1"))
    (scores,), _ = contest(tmp_path / "out", [run], out_sets=(), data=tmp_path / "data")
    assert {name for eps, name in scores.current() if eps} == {"yours", "uniform_noise", "smooth_noise"}
    noisy = untrained(tmp_path / "noisy", replace(chosen, out_set="smooth_noise"), ("class0", "class1"))
    (scores,), _ = contest(tmp_path / "out", [noisy], out_sets=(), data=tmp_path / "data")
    assert {name for eps, name in scores.current() if eps} == {"uniform_noise", "smooth_noise"}


def test_runs_of_two_in_distributions_are_two_contests(runs: Path, tmp_path: Path) -> None:
    data = arrays(tmp_path / "data", "mnist")
    other = untrained(tmp_path / "mnist", recipe("mnist", "plain"))
    plan = Plan("standard", attacked=1, batch=6)
    found, _ = contest(tmp_path / "out", [runs / "plain", other], plan, (0.001,), ("uniform_noise",), 2, data)
    assert [scores.meta()["in_set"] for scores in found] == ["demo_digits", "mnist"]
    for scores in found:
        assert scores.meta()["files"]["0.001/uniform_noise"]["settings"]["transfer from"] == {}


# ---- what stops it ---------------------------------------------------------------------------------------------------


def test_mistakes_stop_it_before_anything_is_written(runs: Path, tmp_path: Path) -> None:
    good, out = runs / "good", tmp_path / "out"
    write_folder(tmp_path / "data" / "mine" / "test", pictures(4), [0, 0, 1, 1])
    for name in ("a", "b"):
        write_folder(tmp_path / name / "same", pictures(2), None)
    unfinished = Run(tmp_path / "unfinished")
    unfinished.create(recipe("demo"))
    mine = untrained(tmp_path / "mine", replace(recipe("demo"), in_set="mine"), ("ant", "bee"))
    cases: list[tuple[type[CertoodError], str, list[Path], tuple[str, ...]]] = [
        (RunError, "no run folder", [tmp_path / "nowhere"], TWO),
        (RunError, "not finished", [good, unfinished.folder], TWO),
        (ScoreError, "two are alike: good, good", [good, good], TWO),
        (ScoreError, "two are alike: uniform_noise, uniform_noise", [good], ("uniform_noise", "uniform_noise")),
        (ScoreError, "two are alike: same, same", [good], (str(tmp_path / "a/same"), str(tmp_path / "b/same"))),
        (DataError, "did you mean demo_letters", [good], ("demo_lettres",)),
        (DataError, "omniglot/test is not in .*To get it: Unpack", [good], ("omniglot",)),
        (ScoreError, "mine has other classes than the runs: class0, class1", [mine], TWO),
        (RunError, "cannot be 'images'; rename", [shutil.copytree(good, tmp_path / "images")], TWO),
        (RunError, "cannot be 'a,b'; rename", [shutil.copytree(good, tmp_path / "a,b")], TWO),
    ]
    for kind, told, folders, out_sets in cases:
        with pytest.raises(kind, match=told):
            contest(out, folders, out_sets=out_sets, data=tmp_path / "data")
        assert not out.exists()


def test_radii_that_would_be_filed_under_one_name_are_refused_before_anything_is_loaded(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Contest, "_load", lambda *_: pytest.fail("a set was loaded, which may say that others miss"))
    with pytest.raises(ScoreError, match=r"two are alike: 0\.1, 0\.1000001; leave one out"):
        contest(tmp_path / "out", [runs / "oe"], eps=(0.1, 0.1000001))
    assert not (tmp_path / "out").exists()


def test_a_permuted_set_of_ones_own_stays_in_its_folder(runs: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "mine", pictures(2), None)
    (scores,), _ = contest(tmp_path / "out", [runs / "oe"], out_sets=(f"permuted_pixels:{tmp_path / 'mine'}",))
    assert (scores.folder / "0.02" / "permuted_pixels:mine.csv").is_file()
    assert len(contents(tmp_path / "out")) == 2 + 2  # scores and images of two sets
