"""Filing: a kill anywhere changes nothing, and what is finished is kept as long as what it depends on is the same."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_detectors import Linear, hills, image_set
from test_scores import meta

from certood.attacks import BUDGETS, AutoPGD, MonotonePGD
from certood.data.sources import ImageSet, load
from certood.errors import BrokenInvariant, CertoodError
from certood.evaluation import Plan
from certood.filing import Entrant, Filing
from certood.scores import Scores
from certood.team import Team

IN_SCORES = np.linspace(0, 40, 10_001)
PLAN = Plan("standard", attacked=6, batch=3)


class Heard:
    """A show that remembers what was said, and how many images were evaluated."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.images = 0

    def say(self, line: str) -> None:
        self.lines.append(line)

    def begin(self, what: str, images: int, done: int) -> None: ...

    def advance(self, images: int) -> None:
        self.images += images

    def watch(self, run: str, attack: str, still_open: int) -> None: ...


def entrant(out: Path, name: str = "run", seed: int = 0, weights: str = "w", wrong: float = 0.0) -> Entrant:
    scores = Scores(out / name)
    scores.write_meta(meta(weights=weights, in_set="made_up", files=scores.meta().get("files", {})))
    return Entrant(scores, Linear(seed, wrong), weights)


def filing(
    out: Path, *entrants: Entrant, images: ImageSet | None = None, plan: Plan = PLAN, eps: float = 0.1
) -> Filing:
    return Filing(entrants or (entrant(out),), images or image_set(), eps, plan, "in-digest")


def file(filing: Filing) -> Heard:
    heard = Heard()
    filing.run({each.name: IN_SCORES for each in filing.entrants}, torch.device("cpu"), heard, Team())
    return heard


def contents(out: Path) -> dict[str, bytes]:
    """All that was filed but for the clock."""
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.*") if path.suffix in (".csv", ".npy")
    }


def gradients(out: Path) -> list[tuple[str, int, list[int]]]:
    """What the attacks of each run have cost, in all and batch by batch."""
    known = [(path.parent.name, Scores(path.parent).meta()["files"]["0.1/made_up"]) for path in out.glob("*/meta.json")]
    return sorted((name, each["gradients"], each["gradients by batch"]) for name, each in known)


class Killed(BaseException):
    """As SIGKILL: nothing that a program would do about an error happens."""


@contextmanager
def fault(at: int, cut: int, error: BaseException) -> Iterator[None]:
    """The write number `at` ends `cut` bytes short, and neither it nor any later one comes to the disk."""
    real, writes = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal writes
        writes += 1
        if writes == at and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - cut))
        if writes >= at:
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield
    assert os.fsync is real


# ---- interruption ----------------------------------------------------------------------------------------------------


FULL = OSError(28, "No space left on device")


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 48), st.integers(0, 60), st.sampled_from([Killed(), FULL])), max_size=5))
def test_kills_and_full_disks_at_any_write_change_nothing(faults: list[tuple[int, int, BaseException]]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        finished = []
        for out, happening in ((Path(one), []), (Path(other), faults)):
            both = filing(out, entrant(out, "a"), entrant(out, "b", seed=1))
            for each in happening:
                with suppress(Killed, CertoodError), fault(*each):
                    file(both)
            file(both)
            finished.append((contents(out), gradients(out)))
    assert finished[0] == finished[1]


@pytest.mark.parametrize("at", range(1, 10))
def test_a_full_disk_is_told_wherever_it_happens(at: int, tmp_path: Path) -> None:
    one = filing(tmp_path)
    with pytest.raises(CertoodError, match=r"cannot write .*: the disk is full; free some space"), fault(at, 7, FULL):
        file(one)
    assert file(one).images > 0


def test_what_was_done_before_a_kill_is_not_done_again(tmp_path: Path) -> None:
    with pytest.raises(Killed), fault(14, 0, Killed()):
        file(filing(tmp_path))
    done = Scores(tmp_path / "run").file(0.1, "made_up").rows()
    assert 0 < done < 11
    assert file(filing(tmp_path)).images == 11 - 3 * (done // 3)
    known = Scores(tmp_path / "run").meta()["files"]["0.1/made_up"]
    assert (known["rows"], known["attacked"], known["classes"]) == (11, 6, ["a", "b"])


def test_a_kill_between_two_runs_does_not_keep_them_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = (AutoPGD("uniform", steps=4), MonotonePGD("transfer", steps=4))
    monkeypatch.setitem(BUDGETS, "standard", budget)
    both = filing(tmp_path, *(replace(entrant(tmp_path, str(seed)), detector=hills(seed)) for seed in (1, 2)))
    file(both)
    before = contents(tmp_path)
    assert b"transfer:1/MonotonePGD" in before["2/0.1/made_up.csv"]
    (tmp_path / "2" / "0.1" / "made_up.csv").unlink()
    file(both)
    assert contents(tmp_path) == before


def test_a_half_written_last_line_is_repaired(tmp_path: Path) -> None:
    file(filing(tmp_path))
    before = contents(tmp_path)
    path = tmp_path / "run" / "0.1" / "made_up.csv"
    path.write_bytes(before["run/0.1/made_up.csv"][:-9])
    assert file(filing(tmp_path)).images == 2  # the last batch
    assert contents(tmp_path) == before


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a row of junk": lambda lines: [*lines[:5], b"junk\n", *lines[6:]],
    "a row twice": lambda lines: [*lines[:5], lines[4], *lines[6:]],
    "a row of another set": lambda lines: [*lines[:5], b"77,0,0,0.0,,1.0,\n", *lines[6:]],
    "a row gone": lambda lines: [*lines[:5], *lines[6:]],
    "a row too many": lambda lines: [*lines, lines[-1]],
    "no header": lambda lines: lines[1:],
    "other line ends": lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_and_repaired(damage: Callable[[list[bytes]], list[bytes]], tmp_path: Path) -> None:
    file(filing(tmp_path))
    before, spent = contents(tmp_path), gradients(tmp_path)
    path = tmp_path / "run" / "0.1" / "made_up.csv"
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    heard = file(filing(tmp_path))
    assert any("made_up.csv is damaged after row" in line for line in heard.lines)
    assert contents(tmp_path) == before
    assert gradients(tmp_path) == spent


@pytest.mark.parametrize("rows", [4, 12])
@pytest.mark.parametrize("points", [b"", b"junk", b"cut"])
def test_points_that_are_damaged_are_searched_again(points: bytes, rows: int, tmp_path: Path) -> None:
    """Whether the file is finished or not."""
    file(filing(tmp_path))
    before = contents(tmp_path)
    path = tmp_path / "run" / "0.1" / "made_up.csv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:rows]))
    whole = path.with_suffix(".npy").read_bytes()
    path.with_suffix(".npy").write_bytes(whole[:150] if points == b"cut" else points)
    assert any("made_up.npy is damaged or gone" in line for line in file(filing(tmp_path)).lines)
    assert contents(tmp_path) == before


def test_a_budget_of_other_attacks_is_another_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an update of certood: the name alone does not say what was tried."""
    file(filing(tmp_path))
    monkeypatch.setitem(BUDGETS, "standard", (AutoPGD("uniform", steps=4),))
    assert file(filing(tmp_path)).lines == [
        "made_up, eps 0.1: run is evaluated again, since steps of the attack changed"
    ]


def test_a_broken_invariant_files_nothing_of_its_batch(tmp_path: Path) -> None:
    sound, unsound = entrant(tmp_path, "sound"), entrant(tmp_path, "unsound", wrong=-100.0)
    with pytest.raises(BrokenInvariant, match="for unsound"):
        file(filing(tmp_path, sound, unsound))
    for name in ("sound", "unsound"):
        assert Scores(tmp_path / name).file(0.1, "made_up").rows() == 0
        assert not (tmp_path / name / "0.1" / "made_up.npy").exists()


# ---- reuse -----------------------------------------------------------------------------------------------------------


def test_finished_work_is_kept_and_it_says_so(tmp_path: Path) -> None:
    file(filing(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*") if path.name != "meta.json"}
    heard = file(filing(tmp_path))
    assert heard.lines == ["made_up, eps 0.1: run finished before; weights, data and settings are the same"]
    assert heard.images == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"images": image_set(seed=1)}, "data"),
        ({"images": image_set(count=9)}, "data"),
        ({"in_data": "another"}, "in-distribution data"),
        ({"plan": replace(PLAN, seed=1)}, "seed"),
        ({"plan": replace(PLAN, budget="quick")}, "attack, steps of the attack"),
        ({"plan": replace(PLAN, budget="none")}, "attack, steps of the attack"),
        ({"plan": replace(PLAN, attacked=5)}, "attack samples"),
        ({"plan": replace(PLAN, batch=4)}, "batch size"),
        ({"plan": replace(PLAN, batch=4, seed=1)}, "seed, batch size"),
    ],
)
def test_what_depends_on_a_change_is_done_again_and_the_change_named(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    first = filing(tmp_path / "out")
    file(first)
    changed = replace(first, **changes)
    heard = file(changed)
    assert heard.lines == [f"made_up, eps 0.1: run is evaluated again, since {named} changed"]
    assert heard.images == len(changed.images)
    fresh = replace(filing(tmp_path / "fresh"), **changes)
    file(fresh)
    new, expected = contents(tmp_path / "out"), contents(tmp_path / "fresh")
    assert {name: new[name] for name in expected} == expected
    assert ("run/0.1/made_up.npy" in new) == (changed.plan.budget != "none")


def test_other_weights_and_other_runs_are_named(tmp_path: Path) -> None:
    file(filing(tmp_path))
    heard = file(filing(tmp_path, entrant(tmp_path, weights="v", seed=1)))
    assert heard.lines == ["made_up, eps 0.1: run is evaluated again, since weights changed"]
    heard = file(filing(tmp_path, entrant(tmp_path, weights="v", seed=1), entrant(tmp_path, "joined")))
    assert heard.lines == ["made_up, eps 0.1: run is evaluated again, since transfer from changed"]
    assert heard.images == 11
    heard = file(filing(tmp_path, entrant(tmp_path, "joined"), entrant(tmp_path, weights="v", seed=1)))
    assert heard.lines == ["made_up, eps 0.1: joined, run finished before; weights, data and settings are the same"]


@pytest.mark.parametrize(("budget", "eps"), [("quick", 0.1), ("none", 0.1), ("standard", 0.0)])
def test_without_transfer_a_finished_run_is_left_alone_when_another_joins(
    budget: str, eps: float, tmp_path: Path
) -> None:
    plan = replace(PLAN, budget=budget)
    file(filing(tmp_path, plan=plan, eps=eps))
    before = contents(tmp_path)
    path = tmp_path / "run" / f"{eps:g}" / "made_up.csv"
    written = path.stat().st_mtime_ns
    heard = file(filing(tmp_path, entrant(tmp_path), entrant(tmp_path, "joined", seed=1), plan=plan, eps=eps))
    assert len(heard.lines) == 1
    assert "run finished before" in heard.lines[0]
    assert path.stat().st_mtime_ns == written
    assert {name: content for name, content in contents(tmp_path).items() if name in before} == before
    assert Scores(tmp_path / "joined").file(eps, "made_up").rows() == 11


def test_points_that_are_gone_are_searched_again(tmp_path: Path) -> None:
    file(filing(tmp_path))
    before = contents(tmp_path)
    (tmp_path / "run" / "0.1" / "made_up.npy").unlink()
    file(filing(tmp_path))
    assert contents(tmp_path) == before


def test_noise_drawn_to_another_limit_is_other_data(tmp_path: Path) -> None:
    few, more = (load("uniform_noise", "test", folder=None, channels=1, size=4, limit=limit) for limit in (8, 12))
    file(filing(tmp_path, images=few))
    heard = file(filing(tmp_path, images=more))
    assert heard.lines == ["uniform_noise, eps 0.1: run is evaluated again, since data changed"]
    assert sorted(Scores(tmp_path / "run").file(0.1, "uniform_noise").read().index) == list(range(12))


# ---- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["made_up", "uniform_noise"])
def test_images_are_those_of_the_first_rows_for_every_plan(name: str, tmp_path: Path) -> None:
    noise = load("uniform_noise", "test", folder=None, channels=1, size=4, limit=11)
    images = image_set() if name == "made_up" else noise
    for plan in (PLAN, replace(PLAN, seed=1), replace(PLAN, attacked=4), replace(PLAN, attacked=99), PLAN):
        this = filing(tmp_path, images=images, plan=plan)
        file(this)
        scores = Scores(tmp_path / "run")
        known = scores.meta()["files"][this.key]
        kept = np.load(tmp_path / "images" / known["images"])
        first = scores.file(0.1, images.name).read().index[: known["attacked"]]
        assert np.array_equal(kept, images.images(first))
        points = np.load(scores.file(0.1, images.name).points)
        clean = kept / np.float32(255) if kept.dtype == np.uint8 else kept
        assert points.dtype == np.float32
        assert points.shape == kept.shape
        assert (np.abs(points - clean) <= 0.1 + 1e-6).all()
        assert (points >= 0).all()
        assert (points <= 1).all()
