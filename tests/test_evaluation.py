"""Evaluation: rows are exact where that can be known, score <= adversarial <= certified holds or it stops."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_detectors import Linear, hills, image_set
from torch import Tensor

from certood.attacks import BUDGETS, AutoPGD, MonotonePGD
from certood.boxes import Box
from certood.data.sources import ImageSet
from certood.detectors import Detector
from certood.errors import AttackError, BrokenInvariant
from certood.evaluation import Batch, Plan, evaluate, pixels
from certood.scores import Row

IN_SCORES = np.linspace(0, 40, 100_001)  # 0.04 hold a thousandth of them: attacks are not given up because of ranks
CPU = torch.device("cpu")


TRANSFERRING = (AutoPGD("uniform", steps=4), MonotonePGD("transfer", steps=4), MonotonePGD("best", steps=4))


def batches(
    detectors: Mapping[str, Detector], images: ImageSet, eps: float, plan: Plan, first: int = 0
) -> Iterator[dict[str, Batch]]:
    return evaluate(detectors, images, eps, plan, dict.fromkeys(detectors, IN_SCORES), CPU, first)


def rows(detector: Detector, images: ImageSet, eps: float, plan: Plan) -> list[Row]:
    return [row for step in batches({"run": detector}, images, eps, plan) for row in step["run"].rows]


plans = st.builds(Plan, st.sampled_from(["none", *BUDGETS]), st.integers(1, 12), st.integers(0, 3), st.integers(1, 12))


# ---- the plan --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), plans, st.integers(1, 60))
def test_every_image_once_and_the_same_sample_first_in_any_batches(length: int, plan: Plan, size: int) -> None:
    parts = plan.batches(length)
    order = np.concatenate(parts)
    first = plan.first(length)
    assert np.array_equal(np.sort(order), np.arange(length))
    assert all(len(part) <= plan.batch for part in parts)
    assert first in np.cumsum([0, *map(len, parts)])  # no batch is attacked in part
    others = Plan(plan.budget, plan.attacked, plan.seed, size).batches(length)
    assert np.array_equal(order, np.concatenate(others))


def test_the_seed_chooses_the_sample() -> None:
    assert not np.array_equal(Plan(attacked=9).batches(99)[0], Plan(attacked=9, seed=1).batches(99)[0])


@pytest.mark.parametrize("wrong", [{"budget": "strong"}, {"attacked": 0}, {"batch": 0}, {"seed": -1}])
def test_plans_that_are_none(wrong: dict[str, int]) -> None:
    with pytest.raises(AttackError, match=f"{next(iter(wrong.values()))}"):
        Plan(**wrong)


# ---- rows ------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(plans, st.sampled_from([0.0, 1e-6, 0.1, 1.0]), st.integers(1, 12), st.integers(0, 9))
def test_rows_of_a_linear_detector_are_exact(plan: Plan, eps: float, count: int, seed: int) -> None:
    images, detector = image_set(count, seed), Linear(seed)
    found = rows(detector, images, eps, plan)
    indices = np.array([row.index for row in found])
    assert np.array_equal(indices, np.concatenate(plan.batches(count)))
    assert [row.label for row in found] == images.labels(indices).tolist()
    x = pixels(images, indices)
    assert [row.prediction for row in found] == detector.log_probs(x).argmax(1).tolist()
    assert [row.score for row in found] == pytest.approx(detector.score(x).tolist(), abs=1e-12)
    worst = detector.score_upper(Box.around(x, eps)).numpy()
    assert [row.certified for row in found] == pytest.approx(worst, abs=1e-6 if eps == 0 else 1e-12)
    adversarial = np.array([row.adversarial for row in found])
    attacked = count if eps == 0 else 0 if plan.budget == "none" else plan.first(count)
    assert np.array_equal(np.isnan(adversarial), np.arange(count) >= attacked)
    assert (adversarial[:attacked] >= worst[:attacked] - 0.04 - 1e-6).all()
    for row in found[:attacked]:
        assert row.score <= row.adversarial <= row.certified
    assert all(bool(row.attack) == (eps > 0 and at < attacked) for at, row in enumerate(found))


@pytest.mark.parametrize("budget", ["none", "quick", "standard"])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_it_goes_on_at_any_batch_and_runs_stand_in_any_order(
    budget: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUDGETS, "standard", TRANSFERRING)
    images, plan = image_set(7), Plan(budget, attacked=4, batch=2)
    three = {name: hills(seed) for name, seed in (("a", 1), ("b", 2), ("c", 3))}
    steps = list(batches(three, images, 0.1, plan))
    others = list(batches(dict(reversed(three.items())), images, 0.1, plan, first))
    assert len(others) == len(steps) - first
    for step, other in zip(steps[first:], others, strict=True):
        for name in three:
            assert repr(step[name].rows) == repr(other[name].rows)
            assert step[name].gradients == other[name].gradients
            one, two = step[name].points, other[name].points
            assert (one is None and two is None) or torch.equal(one, two)


@pytest.mark.parametrize("budget", BUDGETS)
def test_points_lie_in_the_box_and_have_their_score(budget: str) -> None:
    images, detector = image_set(), Linear(5)
    for step in batches({"run": detector}, images, 0.1, Plan(budget, attacked=7, batch=3)):
        batch = step["run"]
        if batch.points is not None:
            box = Box.around(pixels(images, np.array([row.index for row in batch.rows])), 0.1)
            assert box.contains(batch.points).all()
            again = detector.score(batch.points).tolist()
            assert [row.adversarial for row in batch.rows] == pytest.approx(again, abs=1e-9)


def test_noise_is_taken_as_it_is_and_bytes_are_divided() -> None:
    images = image_set(3)
    assert torch.equal(pixels(images, np.arange(3)), torch.from_numpy(images.images(np.arange(3))).float() / 255)
    noise = ImageSet("noise", "test", (1, 1, 1), 0, (), "d", 2, lambda rows: np.full((len(rows), 1, 1, 1), 0.3), None)
    assert pixels(noise, np.arange(2)).flatten().tolist() == pytest.approx([0.3, 0.3])


# ---- transfer --------------------------------------------------------------------------------------------------------


class Peak(Detector):
    """Flat but for the corner of one box: 16 pixels must all be right, and no gradient says so from afar."""

    def __init__(self, linear: Linear, box: Box) -> None:
        self.linear, self.below = linear, linear.score_upper(box) - 0.3

    def log_probs(self, x: Tensor) -> Tensor:
        top = (self.linear.score(x) - self.below).clamp(min=0)
        return torch.stack([top, torch.zeros_like(top)], 1).log_softmax(1)

    def score_upper(self, box: Box) -> Tensor:
        return torch.full((len(box),), 0.3, dtype=torch.float64)


def test_what_is_found_against_one_run_is_tried_on_the_others() -> None:
    images, plan, linear = image_set(1), Plan("standard", batch=1), Linear(4)
    peak = Peak(linear, Box.around(pixels(images, np.arange(1)), 0.4))
    (alone,) = rows(peak, images, 0.4, plan)
    (step,) = batches({"peak": peak, "helper": linear}, images, 0.4, plan)
    (helped,) = step["peak"].rows
    assert alone.adversarial == 0.0
    assert helped.adversarial == pytest.approx(0.3, abs=0.02)
    assert helped.attack.startswith("transfer:helper/")


def test_other_runs_can_only_help_an_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, "standard", TRANSFERRING)
    images, plan = image_set(200), Plan("standard", batch=200)
    two = {"a": hills(1), "b": hills(2)}
    (step,) = batches(two, images, 0.2, plan)
    for name in two:
        alone = np.array([row.adversarial for row in rows(two[name], images, 0.2, plan)])
        helped = np.array([row.adversarial for row in step[name].rows])
        assert (helped >= alone).all()
        assert (helped > alone).any()


# ---- the invariant ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-0.3, -1.0, -1e3, -np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 4, 10])
def test_a_bound_that_is_too_low_stops_everything_and_names_the_image(
    wrong: float, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUDGETS, "quick", (AutoPGD("clean", steps=4),))  # in one step at the worst corner, not near it
    bound = torch.zeros(11, dtype=torch.float64)
    bound[at] = wrong
    with pytest.raises(BrokenInvariant, match=rf"for run: image {at} of made_up, eps 0\.1, .*please report"):
        rows(Linear(wrong=bound), image_set(), 0.1, Plan("quick"))


def test_a_score_of_infinity_is_above_any_finite_bound() -> None:
    class Certain(Detector):
        def log_probs(self, x: Tensor) -> Tensor:
            return torch.tensor([[0.0, -torch.inf]], dtype=torch.float64).expand(len(x), 2)

        def score_upper(self, box: Box) -> Tensor:
            return torch.full((len(box),), 5.0, dtype=torch.float64)

    with pytest.raises(BrokenInvariant, match="has score inf"):
        rows(Certain(), image_set(), 0.1, Plan("none"))


def test_the_batches_before_are_still_yielded() -> None:
    detector = Linear()
    steps = batches({"sound": Linear(1), "run": detector}, image_set(), 0.1, Plan("none", batch=3))
    assert len(next(steps)["run"].rows) == 3
    detector.wrong = -100.0
    with pytest.raises(BrokenInvariant, match="for run: image 3"):
        next(steps)


def test_an_attack_that_beats_the_bound_is_named() -> None:
    with pytest.raises(BrokenInvariant, match=r"adversarial \S+ \(\S+/\w+\) and certified"):
        rows(Linear(wrong=-0.5), image_set(), 0.1, Plan("quick"))


def test_rounding_is_forgiven_and_nothing_more() -> None:
    for row in rows(Linear(wrong=-5e-5), image_set(), 1e-7, Plan("quick")):
        assert row.certified == row.adversarial >= row.score
    with pytest.raises(BrokenInvariant):
        rows(Linear(wrong=-1e-3), image_set(), 1e-7, Plan("quick"))


@pytest.mark.parametrize("budget", ["none", "quick"])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_a_score_that_is_nan_stops_everything(budget: str, eps: float) -> None:
    images = image_set()
    marked = pixels(images, np.array([6]))

    class Undecided(Detector):
        def log_probs(self, x: Tensor) -> Tensor:
            here = (x == marked).flatten(1).all(1)[:, None]
            return torch.where(here, torch.nan, Linear().log_probs(x))

        def score_upper(self, box: Box) -> Tensor:
            return Linear().score_upper(box)

    with pytest.raises(BrokenInvariant, match=r"image 6 of made_up, .* has score nan"):
        rows(Undecided(), images, eps, Plan(budget))


def test_without_a_guarantee_anything_is_certified() -> None:
    for row in rows(Linear(wrong=np.inf), image_set(), 0.1, Plan("quick")):
        assert row.certified == np.inf > row.adversarial
