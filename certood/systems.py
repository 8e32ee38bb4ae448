"""The systems that the paper compares, by the names of their run folders: plain, oe, ..., good80, good100, and ours."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, final, get_args

from certood.errors import RecipeError
from certood.recipes import MethodName, Recipe, Scale, recipe


@final
@dataclass(frozen=True)
class System:
    name: str
    method: MethodName
    quantile: float = 1.0
    variant: str = ""  # of the recipe: mnist-shapes for "shapes"

    def recipe(self, name: str, scale: Scale, epochs: int | None, seed: int) -> Recipe:
        """A recipe, made for this system."""
        name = f"{name}-{self.variant}" if self.variant else name
        return replace(recipe(name, self.method, scale, epochs), quantile=self.quantile, seed=seed)


def system(name: str) -> System:
    """A method, good with its quantile in percent, or either with a variant of the recipe.

    >>> system("good80+shapes")
    System(name='good80+shapes', method='good', quantile=0.8, variant='shapes')
    """
    called, _, variant = name.partition("+")
    percent = re.fullmatch(r"good(\d+(?:\.\d+)?)", called)
    if percent and float(percent[1]) <= 100:
        return System(name, "good", float(percent[1]) / 100, variant)
    if called not in get_args(MethodName):
        methods = ", ".join(get_args(MethodName))
        raise RecipeError(f"no system is called {name!r}; there are {methods}, and good with a quantile, as good80")
    return System(name, cast(MethodName, called), variant=variant)


PAPER = (
    *("plain", "oe", "ceda", "acet", "ccu"),
    *("good0", "good20", "good40", "good60", "good80", "good90", "good95", "good100"),
    "prood",
)
OURS = {("mnist", "cpu"): ("oe+shapes", "good80+shapes", "good100+shapes", "prood+shapes")}


def systems_of(name: str, scale: Scale) -> tuple[System, ...]:
    """Of a table: those of the paper, ProoD, and what is our own."""
    return tuple(map(system, PAPER + OURS.get((name, scale), ())))


def folder_name(name: str, seed: int) -> str:
    """Of the run of a system: seeds can be added later without renaming what is there."""
    return name if seed == 0 else f"{name}-seed{seed}"


def planned(
    name: str,
    scale: Scale,
    systems: Sequence[System],
    seeds: Sequence[int],
    epochs: int | None,
    out: Path,
    out_set: str = "",
) -> list[tuple[str, Recipe]]:
    """The runs of a table, by the names of their folders in `out`: seed by seed; trained against `out_set`, if given.

    Where the paper starts GOOD from CEDA (CIFAR-10 at its epoch 200, SVHN at 300), that run comes before.
    """
    found: dict[str, Recipe] = {}
    for seed in seeds:
        for each in systems:
            chosen = each.recipe(name, scale, epochs, seed)
            if chosen.kappa_start < 0:
                start = folder_name("ceda-start", seed)
                found[start] = replace(recipe(name, "ceda", scale, epochs or CEDA_EPOCHS[name]), seed=seed)
                chosen = replace(chosen, start_from=str(out.resolve() / start))
            found[folder_name(each.name, seed)] = chosen
    if out_set:
        found = {name: replace(each, out_set=out_set) for name, each in found.items()}
    return list(found.items())


CEDA_EPOCHS = {"cifar10": 200, "svhn": 300}


def seeds_of(words: Sequence[str]) -> tuple[int, ...]:
    if not all(word.isdecimal() for word in words):
        raise RecipeError(f"seeds are whole numbers, not {', '.join(words)}")
    return tuple(dict.fromkeys(int(word) for word in words))
