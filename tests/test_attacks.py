"""Attacks: inside the box, never below the start, only what was evaluated; each loop against what theory says of it."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from certood import networks
from certood.attacks import (
    BUDGETS,
    STARTS,
    Attack,
    AutoPGD,
    Enough,
    Found,
    MonotonePGD,
    Peek,
    SignAscent,
    SparseAscent,
    SquareSearch,
    maximise,
)
from certood.bounds import Box, score_upper
from certood.detectors import Softmax
from certood.errors import AttackError

ATTACKS: dict[str, Attack] = {
    "sign": SignAscent("clean", steps=8),
    "auto": AutoPGD("uniform", steps=12),
    "monotone": MonotonePGD("contrast", steps=8),
    "sparse": SparseAscent("split-50", steps=8),
    "square": SquareSearch("clean", steps=15),
    "peek": Peek("corner"),
    "transfer": MonotonePGD("transfer", steps=5),
    "best": AutoPGD("best", steps=6),
}
CONTRACT = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def detector(seed: int) -> Softmax:
    torch.manual_seed(seed)
    network = networks.build("XS", channels=1, size=8, classes=4)
    network[-1].weight.data *= 30  # fresh weights are nearly flat
    return Softmax(network.double())


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def total(z: Tensor) -> Tensor:
    return z.flatten(1).sum(1)


# ---- the contract of every attack ------------------------------------------------------------------------------------


@CONTRACT
@settings(max_examples=15)
@given(seed=st.integers(0, 20), eps=st.floats(0, 0.5))
def test_inside_evaluated_and_no_worse_than_the_image(attack: Attack, seed: int, eps: float) -> None:
    x, score = images(3, seed), detector(seed).score
    box = Box.around(x, eps)
    found = maximise(score, box, x, budget=[attack], pool={"elsewhere": images(3, seed + 1)}, seed=seed)
    assert box.contains(found.points).all()
    assert torch.allclose(found.scores, score(found.points), rtol=0, atol=1e-12)
    assert (found.scores >= score(x)).all()


@CONTRACT
def test_the_same_seed_finds_the_same_and_a_sample_does_not_feel_its_neighbours(attack: Attack) -> None:
    x, score = images(6), detector(1).score
    pool = {"elsewhere": images(6, 9)}
    first = maximise(score, Box.around(x, 0.2), x, budget=[attack], pool=pool, seed=5)
    again = maximise(score, Box.around(x, 0.2), x, budget=[attack], pool=pool, seed=5)
    assert torch.equal(first.points, again.points)
    closed = torch.where(torch.arange(6) % 2 == 0, -torch.inf, torch.inf)  # ceilings: every other sample is settled
    pruned = maximise(score, Box.around(x, 0.2), x, budget=[attack], pool=pool, seed=5, ceiling=closed, enough=Enough())
    assert torch.equal(pruned.gradients[::2], torch.zeros(3, dtype=torch.int64))
    assert torch.allclose(pruned.scores[1::2], first.scores[1::2], rtol=0, atol=1e-12)


@CONTRACT
def test_a_score_of_nan_is_never_the_best(attack: Attack) -> None:
    def score(z: Tensor) -> Tensor:
        value = total(z)
        return torch.where(value > 33, torch.nan, value)

    x = torch.full((2, 1, 8, 8), 0.5)
    found = maximise(score, Box.around(x, 0.3), x, budget=[attack], pool={"elsewhere": x + 0.001})
    assert found.scores.isfinite().all()
    assert (found.scores >= 32).all()


@CONTRACT
def test_weights_get_no_gradient_and_no_samples_are_no_trouble(attack: Attack) -> None:
    own = detector(1)
    maximise(own.score, Box.around(images(2), 0.05), budget=[attack], pool={"elsewhere": images(2)})
    assert all(weight.grad is None for weight in own.network.parameters())
    assert (
        len(maximise(own.score, Box.around(images(0), 0.1), budget=[attack], pool={"elsewhere": images(0)}).points) == 0
    )


@pytest.mark.parametrize("budget", BUDGETS)
def test_budgets_stay_below_the_bound_and_grow(budget: str) -> None:
    own, box = detector(3), Box.around(images(3), 0.05)
    attacks = [
        replace(attack, steps=min(attack.steps, 10)) if hasattr(attack, "steps") else attack
        for attack in BUDGETS[budget]
    ]
    found = maximise(own.score, box, budget=attacks)
    assert (found.scores <= score_upper(own.network, box)).all()
    assert (found.gaps == torch.inf).all()
    assert (found.evaluations >= found.gradients).all()


# ---- each loop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attack",
    [SignAscent(steps=40), AutoPGD("near", steps=60), MonotonePGD("clean", steps=60), SparseAscent("clean", steps=200)],
)
def test_a_linear_score_is_maximised_exactly(attack: Attack) -> None:
    direction = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    box = Box.around(torch.rand(5, 1, 8, 8), 0.2)
    found = maximise(lambda z: total(z * direction), box, budget=[attack])
    assert torch.allclose(found.scores, total(box.corner(direction) * direction).double(), atol=1e-4)


@pytest.mark.parametrize("kind", [AutoPGD, MonotonePGD])
def test_a_concave_score_is_maximised_nearly(kind: type[AutoPGD | MonotonePGD]) -> None:
    """The peak lies inside the box: signs alone jump over it, halved steps do not."""
    x = torch.full((4, 1, 8, 8), 0.5)
    peak = x + 0.1 * (2 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) - 1)
    found = maximise(lambda z: -total((z - peak) ** 2), Box.around(x, 0.2), x, budget=[kind("clean", 300)])
    assert (found.scores > 0.02 * -total((x - peak) ** 2)).all()


def test_checkpoints_of_auto_pgd_are_those_of_the_paper() -> None:
    ends = list(AutoPGD(steps=500).checkpoints())
    assert ends[:4] == [110, 205, 285, 350]  # 0.22, 0.41, 0.57, 0.70 of 500
    gaps = [after - before for before, after in pairwise(ends)]
    assert min(gaps) == 30
    assert all(later <= earlier for earlier, later in pairwise(gaps))
    assert sum(AutoPGD(steps=500).checkpoints().values()) == ends[-1] <= 500
    assert set(AutoPGD(steps=3).checkpoints()) <= {1, 2, 3}


def test_auto_pgd_halves_only_when_a_step_does_not_pay() -> None:
    """On a linear score with room to go, all steps of 2 eps after the first end at the same corner."""
    looked: list[Tensor] = []

    def score(z: Tensor) -> Tensor:
        looked.append(z.detach().clone())
        return total(z)

    x = torch.full((1, 1, 8, 8), 0.5)
    found = maximise(score, Box.around(x, 0.1), x, budget=[AutoPGD("clean", steps=20)])
    assert torch.equal(looked[2], torch.full_like(x, 0.6))
    assert found.points.min() == pytest.approx(0.6)


def test_monotone_pgd_never_goes_down() -> None:
    path: list[float] = []
    own = detector(2)

    def score(z: Tensor) -> Tensor:
        value = own.score(z)
        path.append(float(value.detach()[0]))
        return value

    x = images(1)
    found = maximise(score, Box.around(x, 0.3), x, budget=[MonotonePGD("clean", steps=60)])
    assert found.scores[0] == pytest.approx(max(path))
    assert found.scores[0] > path[0]


def test_sparse_ascent_climbs_where_every_step_along_all_signs_goes_down() -> None:
    """Eight pixels pay; the others seem to pay a little, and wake a unit at its threshold: as on GOOD models."""

    def score(z: Tensor) -> Tensor:
        pays, seems = (z - 0.5).flatten(1).split((8, 56), 1)
        return pays.sum(1) + 0.01 * seems.sum(1) - 10 * seems.sum(1).relu()

    x = torch.full((4, 1, 8, 8), 0.5)
    box = Box.around(x, 0.2)
    stuck = maximise(score, box, x, budget=[MonotonePGD("clean", 60)])
    assert (stuck.scores == 0).all()
    assert (stuck.gradients == 1).all()  # steps that fail cost none
    assert (stuck.evaluations > 15).all()
    assert (maximise(score, box, x, budget=[SparseAscent("clean", 60)]).scores > 1.5).all()


def test_a_flat_score_costs_one_gradient_and_is_left_to_the_search_without() -> None:
    x = images(4)
    gradient = [SignAscent(steps=30), AutoPGD("clean", steps=30), SparseAscent("clean"), MonotonePGD("clean", steps=30)]
    found = maximise(
        lambda z: (z * 0).flatten(1).sum(1), Box.around(x, 0.2), x, budget=[*gradient, SquareSearch(steps=7)]
    )
    assert (found.gradients == 4).all()
    assert (found.evaluations == 1 + 4 + 8).all()


def test_square_search_wanders_over_a_plateau_to_where_it_rises() -> None:
    """The score is flat until half of the left columns are white: no gradient shows the way."""

    def score(z: Tensor) -> Tensor:
        return ((z[:, 0, :, :4] > 0.69).double().mean((1, 2)) - 0.5).clamp(min=0)

    x = torch.full((8, 1, 8, 8), 0.5)
    found = maximise(score, Box.around(x, 0.2), x, budget=[AutoPGD("clean"), SquareSearch("clean", steps=300)])
    assert (found.scores > 0).double().mean() > 0.7
    assert set(found.attacks) <= {"clean", "clean/SquareSearch"}


def test_what_is_no_image_can_be_searched_too() -> None:
    x = torch.full((3, 10), 0.5)
    found = maximise(lambda z: z.sum(1), Box.around(x, 0.25), x, budget=[SquareSearch(steps=200)])
    assert (found.scores > 6.5).all()


@pytest.mark.parametrize("start", STARTS)
def test_starts_are_where_they_say(start: str) -> None:
    x = images(5)
    box, draw = Box.around(x, 0.3), torch.Generator().manual_seed(0)
    points = STARTS[start](box, x, draw)
    assert points.shape == x.shape
    if start in ("contrast", "corner") or start.startswith("split"):
        assert ((points == box.lower) | (points == box.upper)).all()
    if start == "contrast":
        assert torch.equal(points, torch.where(x > 0.7, 1.0, (x - 0.3).clamp(min=0)))  # appendix on attacks
    if start == "near":
        assert (points - x).abs().max() <= 0.01
    if start == "decontrast":
        assert (box.project(points).flatten(1).std(1) < x.flatten(1).std(1)).all()


# ---- when it is enough -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.integers(-6, 6), st.integers(0, 6), st.floats(0, 0.5))
def test_enough_means_that_no_more_than_its_share_of_the_ranking_can_be_passed(
    in_scores: list[int], score: int, gap: int, share: float
) -> None:
    enough = Enough(torch.tensor(in_scores, dtype=torch.float64), tolerance=0.0, share=share)
    settled = bool(enough(torch.tensor([float(score)]).double(), torch.tensor([float(score + gap)]).double()))
    strict = sum(score < other <= score + gap for other in in_scores)  # pairs that could be lost, without ties
    weak = sum(score <= other < score + gap for other in in_scores)
    assert settled == (gap == 0 or max(strict, (strict + weak) / 2) <= share * len(in_scores))


def test_in_scores_that_lie_within_any_tolerance_are_still_told_apart() -> None:
    """As of a collapsed network: all scores are nearly the same, and the attack still passes every one of them."""
    x = torch.full((4, 1, 8, 8), 0.5)
    inside = torch.linspace(0.001, 0.002, 1000, dtype=torch.float64)
    ceiling = torch.full((4,), 0.003, dtype=torch.float64)

    def score(z: Tensor) -> Tensor:
        return 0.01 * (z - 0.5).flatten(1).mean(1)

    found = maximise(score, Box.around(x, 0.3), x, budget=[AutoPGD("clean")], ceiling=ceiling, enough=Enough(inside))
    assert (found.scores > 0.0029).all()
    alone = maximise(score, Box.around(x, 0.3), x, budget=[AutoPGD("clean")], ceiling=ceiling, enough=Enough())
    assert (alone.gradients == 0).all()


def test_what_is_settled_leaves_the_draws_of_later_attacks_alone() -> None:
    """Square search is over for the two flat samples; who starts at random later starts where it would have."""
    x = images(4) * 0.1 + torch.tensor([0.1, 0.1, 0.8, 0.8]).reshape(4, 1, 1, 1)

    def score(z: Tensor) -> Tensor:
        return torch.where(z.flatten(1).mean(1) < 0.5, 0.0, total(torch.sin(40 * z)))

    budget = [AutoPGD("clean", 2), SquareSearch("clean", steps=9), Peek("uniform"), AutoPGD("uniform", 5)]
    box = Box.around(x, 0.05)
    full = maximise(score, box, x, budget=budget)
    ceiling = torch.tensor([0.0, 0.0, torch.inf, torch.inf])
    less = maximise(score, box, x, budget=budget, ceiling=ceiling, enough=Enough())
    assert torch.allclose(less.scores[2:], full.scores[2:], rtol=0, atol=1e-12)


def test_pruned_attacks_give_the_same_auc_for_less() -> None:
    own = detector(5)
    x, inside = images(40, 1), detector(5).score(images(300, 2)).detach()
    box = Box.around(x, 0.02)
    ceiling = score_upper(own.network, box)
    full = maximise(own.score, box, x, budget="quick", ceiling=ceiling)
    less = maximise(own.score, box, x, budget="quick", ceiling=ceiling, enough=Enough(inside))

    def auc(found: Found) -> float:
        return float((inside[:, None] > found.scores).double().mean())

    assert auc(less) - auc(full) <= 0.001
    assert less.gradients.sum() < full.gradients.sum()
    assert torch.equal(less.gaps, ceiling - less.scores)


def test_going_on_from_what_was_found_keeps_it() -> None:
    x, score = images(4), detector(4).score
    box = Box.around(x, 0.2)
    first = maximise(score, box, x, budget=[AutoPGD("clean", steps=20)])
    more = maximise(score, box, x, budget=[Peek("corner")], after=first)
    assert (more.scores >= first.scores).all()
    assert (more.gradients == first.gradients).all()
    assert (more.evaluations == first.evaluations + 1).all()
    kept = more.scores == first.scores
    assert all(a == b for a, b, same in zip(more.attacks, first.attacks, kept, strict=True) if same)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": "all"}, "no attack budget is called 'all'; there are quick, standard, paper"),
        ({"budget": [AutoPGD("near-by")]}, "no start is called 'near-by'"),
        ({"ceiling": torch.zeros(3)}, "one for each of 2 samples"),
        ({"x": torch.zeros(2, 5)}, "the images are"),
        ({"pool": {"oe": torch.zeros(1, 4)}, "budget": [ATTACKS["transfer"]]}, "points from oe are"),
    ],
)
def test_what_does_not_belong_together_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(AttackError, match=message):
        maximise(lambda z: z.sum(1), Box.around(torch.full((2, 4), 0.5), 0.1), **arguments)  # type: ignore[arg-type]
