"""The systems of a table: their names, their recipes, the folders of their runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from certood.card import title
from certood.errors import RecipeError
from certood.paper import published
from certood.recipes import recipe
from certood.systems import PAPER, folder_name, planned, seeds_of, system, systems_of


def test_names() -> None:
    assert system("good90").recipe("mnist", "cpu", None, 3) == replace(recipe("mnist"), quantile=0.9, seed=3)
    assert system("good99.5").quantile == 0.995
    assert system("good").quantile == 1.0
    for name in ("good101", "better", "good80-shapes", "+shapes"):
        with pytest.raises(RecipeError, match="no system"):
            system(name)


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10"])
def test_the_paper_has_numbers_of_all_but_prood(name: str) -> None:
    for each in systems_of(name, "paper"):
        chosen = each.recipe(name, "paper", None, 0)
        found = published(title(chosen), name, chosen.eps, "uniform_noise")
        assert (found is None) == (each.name == "prood"), each


def test_ours_stand_beside_those_of_the_paper() -> None:
    names = [each.name for each in systems_of("mnist", "cpu")]
    assert names[: len(PAPER)] == list(PAPER)
    assert all(title(system(name).recipe("mnist", "cpu", None, 0)).endswith("+shapes") for name in names[len(PAPER) :])


def test_seeds_come_one_after_the_other() -> None:
    chosen = [system("oe"), system("good100")]
    runs = planned("mnist", "cpu", chosen, (0, 2), None, Path("there"))
    assert [name for name, _ in runs] == ["oe", "good100", "oe-seed2", "good100-seed2"]
    assert [each.seed for _, each in runs] == [0, 0, 2, 2]
    assert folder_name("oe", 0) == "oe"
    assert seeds_of(("1", "0", "1")) == (1, 0)


def test_good_on_colour_starts_from_ceda_as_in_the_paper(tmp_path: Path) -> None:
    runs = dict(planned("svhn", "paper", [system("oe"), system("good80"), system("good100")], (1,), None, tmp_path))
    assert list(runs) == ["oe-seed1", "ceda-start-seed1", "good80-seed1", "good100-seed1"]
    assert (runs["ceda-start-seed1"].method, runs["ceda-start-seed1"].epochs) == ("ceda", 300)
    assert runs["good80-seed1"].start_from == str(tmp_path / "ceda-start-seed1")
    others = planned("cifar10", "paper", [system("good80")], (0,), None, tmp_path, "tiny_imagenet")
    assert {(each.out_set, each.out_without) for _, each in others} == {("tiny_imagenet", "cifar10")}
    assert "ceda-start" not in dict(planned("cifar10", "cpu", [system("good80")], (0,), None, tmp_path))
