"""`certood train`: one run, or with --sweep several, a folder each."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from certood.arguments import Folder, data_folder, listed, parse, shown
from certood.errors import RecipeError, TrainingFailed
from certood.ranks import leads
from certood.recipes import RECIPES, Recipe, Scale, recipe
from certood.systems import folder_name, seeds_of, system

CEDA_START = "certood train {} --scale paper --method ceda --epochs 200 --out CEDA (svhn: 300), then --start-from CEDA"


@dataclass(frozen=True)
class Train:
    """certood train RECIPE --out RUN: train mnist, svhn, cifar10 or demo.

    Example: certood train mnist --quantile 0.8 --data images --out runs/good80

    Defaults follow the recipe, --scale and --method, so put them before --help.
    """

    recipe: tyro.conf.OmitArgPrefixes[Recipe]
    out: Path
    """run folder to write"""
    scale: Scale = "cpu"
    """paper: exactly as published, for GPUs and days; cpu: for two cores and minutes"""
    data: Folder = None
    """folder with image sets, NAME/SPLIT.parquet or other forms; also CERTOOD_DATA"""
    resume: bool = False
    """go on with the run in --out where it was stopped, if there is one"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where to compute"""
    devices: int = 1
    """processes on this machine, a GPU each, that share every batch"""
    nodes: int = 1
    """machines; start the command on each with torchrun or srun"""
    workers: int = 0
    """processes that read images ahead"""
    checkpoint_minutes: float = 10.0
    """time between checkpoints; 0 for one after every step"""
    accumulate: int = 1
    """parts in which a batch is taken, one after the other: less memory, the same result"""
    sweep: Annotated[str, shown("A,B", "(default: none)")] = ""
    """several runs in folders of --out, as plain,oe,good80,good100; what is there is kept or resumed"""
    seeds: Annotated[str, shown("N,M", "(default: --seed)")] = ""
    """of the runs of a sweep, with commas"""
    jobs: int = 1
    """processes that take the runs of a sweep in turn, a GPU each if there are several"""


def train(arguments: Sequence[str]) -> None:
    parsed = parse(
        Train, arguments, "train RECIPE", default=Train(_recipe_before_overrides(arguments), out=tyro.MISSING)
    )
    if parsed.sweep:
        _sweep(arguments, parsed)
        return
    if parsed.seeds or parsed.jobs > 1:
        raise RecipeError("--seeds and --jobs are for a sweep; a single run has a --seed, and --devices")
    if parsed.recipe.kappa_start < 0 and not parsed.recipe.start_from:  # as in the paper's GOOD on SVHN and CIFAR-10
        print(f"certood: the paper starts this run from CEDA: {CEDA_START.format(parsed.recipe.name)}", file=sys.stderr)
    from certood.machine import Machine
    from certood.training import train as run_training

    machine = Machine(
        parsed.device, parsed.devices, parsed.nodes, parsed.workers, parsed.checkpoint_minutes, parsed.accumulate
    )
    try:
        run = run_training(parsed.recipe, parsed.out, data_folder(parsed.data), machine, parsed.resume)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command with --resume goes on" if parsed.out.exists() else "") from None
    if leads():
        print((run.folder / "card.md").read_text(encoding="utf-8"))


def _sweep(arguments: Sequence[str], parsed: Train) -> None:
    """Each run is what its own command line would give: all options hold for all runs."""
    for option in ("--method", "--quantile", "--resume"):
        if option in [word.partition("=")[0] for word in arguments]:
            raise RecipeError(f"a sweep names its methods and quantiles and resumes by itself: leave out {option}")
    if parsed.devices * parsed.nodes > 1:
        raise RecipeError("a run of a sweep is trained by one process; --jobs trains several runs at once")
    planned = []
    for seed in seeds_of(listed(parsed.seeds)) or (parsed.recipe.seed,):
        for each in map(system, listed(parsed.sweep)):
            if each.variant:
                raise RecipeError(
                    f"a variant is a recipe of its own: certood train {parsed.recipe.name}-{each.variant}"
                )
            more = ("--method", each.method, "--quantile", str(each.quantile), "--seed", str(seed))
            words = [*arguments, *more]
            default = Train(_recipe_before_overrides(words), out=tyro.MISSING)
            chosen = parse(Train, words, "train RECIPE", default=default).recipe
            if chosen.kappa_start < 0 and not chosen.start_from:
                raise RecipeError(
                    f"the paper starts {each.name} from CEDA, which `certood reproduce {chosen.name} --scale paper` "
                    f"trains before it; here give a run of your own: --start-from CEDA"
                )
            planned.append((folder_name(each.name, seed), chosen))
    from certood.machine import Machine
    from certood.several import Stages, train_in_turn

    machine = Machine(parsed.device, workers=parsed.workers, checkpoint_minutes=parsed.checkpoint_minutes,
                      accumulate=parsed.accumulate)  # fmt: skip
    try:
        _, failed = train_in_turn(
            planned, parsed.out, data_folder(parsed.data), machine, Stages(len(planned)), parsed.jobs
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on") from None
    if failed:
        raise TrainingFailed(f"{len(failed)} of {len(planned)} failed, the others are finished: {', '.join(failed)}")


def _recipe_before_overrides(arguments: Sequence[str]) -> Recipe:
    """The recipe's own settings depend on its name and three options; all else on the command line overrides them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--method", default="good")
    parser.add_argument("--scale", default="cpu")
    parser.add_argument("--epochs", type=int)
    try:
        chosen, rest = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        raise RecipeError(str(error)) from None
    if rest and rest[0] in ("--help", "-h"):
        return recipe("mnist")
    if not rest or rest[0].startswith("-"):
        raise RecipeError(f"the recipe comes first: certood train {'|'.join(RECIPES)} --out RUN")
    return recipe(rest[0], chosen.method, chosen.scale, chosen.epochs)
