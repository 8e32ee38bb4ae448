"""Recipes against the paper's figures, and their way through JSON."""

import ast
import inspect
import itertools
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certood.assembly import learning_rate
from certood.errors import RecipeError
from certood.recipes import RECIPES, Recipe, discriminator_of, recipe
from certood.schedules import Ramp

METHODS = ("plain", "oe", "ceda", "acet", "ccu", "good", "prood", "discriminator")
ALL = [(name, method, scale) for name in RECIPES for method in METHODS for scale in ("cpu", "paper")]
ALL = [each for each in ALL if each[0] not in ("demo", "mnist-shapes") or each[2] == "cpu"]

# reproduction_facts.md: epochs, lr at some epochs, kappa and eps at some epochs; mean losses, batch 128.
PAPER = [
    (
        "mnist",
        "good",
        420,
        {0: 5e-3, 50: 1e-3, 350: 5e-3 * 0.2**5},
        {2: 0, 52: 0.15, 102: 0.3},
        {10: 0, 70: 0.15, 130: 0.3},
    ),
    ("mnist", "oe", 420, {49: 5e-3, 100: 2e-4}, {2: 0, 102: 0.3}, {}),
    ("mnist", "ceda", 420, {49: 5e-3}, {2: 0, 102: 0.3}, {}),
    ("mnist", "acet", 420, {49: 5e-3}, {1: 0, 2: 0.3}, {5: 0, 6: 0.3}),
    ("svhn", "oe", 420, {0: 7.8125e-5, 30: 1.5625e-5, 100: 3.125e-6}, {60: 0, 210: 0.5, 360: 1}, {}),
    ("svhn", "good", 900, {0: 1e-4, 450: 2e-5, 850: 8e-7}, {0: 2 / 300, 298: 1}, {4: 0, 104: 0.015, 204: 0.03}),
    ("cifar10", "ceda", 420, {0: 7.8125e-4}, {200: 140 / 300}, {}),
    ("cifar10", "good", 900, {0: 1e-4, 750: 4e-6}, {0: 2 / 300, 298: 1}, {204: 0.01}),
    ("mnist", "plain", 420, {300: 5e-3 * 0.2**4}, {}, {}),
    ("mnist", "ccu", 420, {0: 5e-3, 200: 4e-5}, {0: 1}, {}),
    ("mnist", "prood", 420, {0: 5e-3, 350: 5e-3 * 0.2**5}, {2: 0, 52: 0.15, 102: 0.3}, {}),
    ("svhn", "plain", 420, {29: 7.8125e-5, 100: 3.125e-6}, {}, {}),
    ("svhn", "ccu", 420, {29: 7.8125e-5}, {60: 0, 210: 0.5, 360: 1}, {}),
    ("svhn", "ceda", 420, {30: 1.5625e-5}, {60: 0, 300: 0.8}, {}),
    ("svhn", "acet", 100, {100: 3.125e-6}, {1: 0, 2: 1}, {5: 0, 6: 0.03}),
    ("cifar10", "plain", 420, {100: 3.125e-5}, {}, {}),
    ("cifar10", "oe", 420, {30: 1.5625e-4}, {60: 0, 360: 1}, {}),
    ("cifar10", "prood", 420, {30: 1.5625e-4}, {60: 0, 360: 1}, {}),
    *(
        (name, "discriminator", 1000, {0: 1e-4, 500: 2e-5, 750: 4e-6, 850: 8e-7}, {0: 0, 150: 0.5, 300: 1}, {150: half})
        for name, half in (("mnist", 0.15), ("svhn", 0.015), ("cifar10", 0.005))
    ),
    ("cifar10", "acet", 100, {0: 7.8125e-4, 30: 1.5625e-4}, {1: 0, 2: 1}, {5: 0, 6: 0.01}),
]


@pytest.mark.parametrize(("name", "method", "epochs", "lr", "kappa", "eps"), PAPER)
def test_paper_schedules(
    name: str, method: str, epochs: int, lr: dict[int, float], kappa: dict[int, float], eps: dict[int, float]
) -> None:
    chosen = recipe(name, method, "paper")
    assert (chosen.epochs, chosen.ramps, chosen.batch_size) == (epochs, "epoch", 128)
    ramps = {
        "kappa": Ramp(chosen.kappa, chosen.kappa_start, chosen.kappa_ramp),
        "eps": Ramp(chosen.eps, chosen.eps_start, chosen.eps_ramp),
    }
    for epoch, value in lr.items():
        assert learning_rate(chosen)(epoch) == pytest.approx(value)
    for epoch, value in kappa.items():
        assert ramps["kappa"](epoch) == pytest.approx(value)
    for epoch, value in eps.items():
        assert ramps["eps"](epoch) == pytest.approx(value)


def test_paper_constants() -> None:
    mnist, svhn, cifar10 = (recipe(name, "good", "paper") for name in ("mnist", "svhn", "cifar10"))
    assert (mnist.network, mnist.optimiser, mnist.weight_decay) == ("L", "sgd", pytest.approx(3.90625e-4))
    assert (mnist.crop_padding, mnist.out_margin, mnist.flip, mnist.autoaugment) == (4, 4, False, "none")
    for colour in (svhn, cifar10):
        assert (colour.network, colour.optimiser, colour.weight_decay) == ("XL", "adam", pytest.approx(3.90625e-5))
        assert colour.adam_eps == pytest.approx(1e-8 / 128)
    assert (svhn.flip, cifar10.flip) == (False, True)
    assert (svhn.autoaugment, cifar10.autoaugment) == ("svhn", "cifar10")


def test_what_is_beside_the_network() -> None:
    for name, mixture_lr in (("mnist", 1e-5), ("svhn", 1e-5 / 128), ("cifar10", 1e-5 / 128)):
        chosen = recipe(name, "ccu", "paper")
        assert (chosen.components, chosen.mixture_lr) == (100, pytest.approx(mixture_lr))
        first = discriminator_of(recipe(name, "prood", "paper"))
        assert first == recipe(name, "discriminator", "paper")
        assert (first.network, first.optimiser, first.weight_decay, first.adam_eps) == ("D", "adam", 5e-4, 1e-8)
        assert recipe(name, "prood", "paper").discriminator_shift == 3.0


def test_epochs_of_a_discriminator() -> None:
    short = recipe("cifar10", "discriminator", "paper", epochs=100)
    assert (short.epochs, short.lr_milestones, short.kappa_ramp, short.eps_ramp) == (100, (50, 75, 85), 30, 30)
    assert recipe("mnist", "prood", epochs=7).discriminator_epochs == 7


@pytest.mark.parametrize(("name", "method", "scale"), ALL)
def test_json_round_trip(name: str, method: str, scale: str) -> None:
    chosen = recipe(name, method, scale)
    assert Recipe.from_json(chosen.to_json()) == chosen


def test_shapes_stand_in_for_photographs_where_a_method_can_take_them() -> None:
    plain, shapes = recipe("mnist", "oe"), recipe("mnist-shapes", "oe")
    assert (plain.blobs, plain.strokes, plain.pieces) == (0, 0, 0)
    assert min(shapes.blobs, shapes.strokes, shapes.pieces) > 0
    for method in ("good", "discriminator"):
        assert recipe("mnist-shapes", method).blobs > 0
        with pytest.raises(RecipeError, match=r"strokes and pieces may be a digit"):
            replace(recipe("mnist-shapes", method), strokes=0.1)
    assert discriminator_of(recipe("mnist-shapes", "prood")) == replace(
        recipe("mnist-shapes", "discriminator"), strokes=0.0
    )
    with pytest.raises(RecipeError, match="together at most 1"):
        replace(shapes, blobs=0.9)


def test_ramps_follow_the_length_of_a_short_run() -> None:
    short, long = recipe("mnist", epochs=5), recipe("mnist", epochs=50)
    assert (short.kappa_start, short.kappa_ramp) == (0.5, 2.0)
    assert (long.eps_start, long.eps_ramp) == (5.0, 20.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epochs", 0), ("batch_size", -1), ("lr", 0.0), ("lr", float("nan")), ("kappa", float("inf"))),
        *(("quantile", 1.5), ("quantile", -0.1), ("quantile", "0.8"), ("eps", 8.0), ("eps", -0.1), ("flip", 1)),
        *(("method", "good80"), ("network", 3), ("lr_milestones", (1.5,)), ("epochs", 2.5), ("seed", -1)),
        *(("crop_padding", 28), ("out_margin", 28), ("batch_size", 10**9)),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object) -> None:
    with pytest.raises(RecipeError, match=field):
        replace(recipe("mnist"), **{field: value})


@given(st.text(max_size=50) | st.sampled_from(["[]", "{}", "null", '{"name": 3}', '{"name": "mnist", "x": 1}']))
def test_what_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(RecipeError):
        Recipe.from_json(text)


def test_every_field_is_explained() -> None:
    """A string stands below each field: --help shows it."""
    (definition,) = ast.parse(inspect.getsource(Recipe)).body
    below = dict(itertools.pairwise(definition.body))
    named = [node for node in definition.body if isinstance(node, ast.AnnAssign)]
    assert len(named) == len(fields(Recipe))
    for node in named:
        assert isinstance(below[node], ast.Expr), f"{ast.unparse(node.target)} is not explained"
