"""The command line. Thin: it reads arguments, calls one function and prints. What is slow to import waits its turn."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

import certood
from certood.arguments import Folder, data_folder, parse
from certood.errors import CertoodError, RecipeError
from certood.ranks import leads, speaks
from certood.recipes import RECIPES, Recipe, Scale, recipe

HELP = """certood: image classifiers that provably know when they don't know

  certood demo                          all of it on built-in images, in minutes
  certood train mnist --data DIR --out runs/good      train a recipe
  certood evaluate runs/good --data DIR --out scores  score, attack and certify
  certood report scores                 one page of tables, figures, pictures
  certood calibrate runs/good --data DIR         set the threshold to accept at
  certood certify runs/good a.png --eps 0.1      what holds near an image
  certood verify seven.json --weights runs/good --image seven.png  check a proof
  certood data list                     image sets, and which are here

certood COMMAND --help explains a command, certood --version tells the version."""


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


def train(arguments: Sequence[str]) -> None:
    parsed = parse(
        Train, arguments, "train RECIPE", default=Train(_recipe_before_overrides(arguments), out=tyro.MISSING)
    )
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


def demo(arguments: Sequence[str]) -> None:
    from certood.cli_demo import demo as run_demo

    run_demo(arguments)


def verify(arguments: Sequence[str]) -> None:
    from certood.cli_verify import verify as run_verify

    run_verify(arguments)


def data(arguments: Sequence[str]) -> None:
    from certood.cli_data import data as run_data

    run_data(arguments)


def evaluate(arguments: Sequence[str]) -> None:
    from certood.cli_evaluate import evaluate as run_evaluate

    run_evaluate(arguments)


def report(arguments: Sequence[str]) -> None:
    from certood.cli_report import report as run_report

    run_report(arguments)


def calibrate(arguments: Sequence[str]) -> None:
    from certood.cli_guard import calibrate as run_calibrate

    run_calibrate(arguments)


def certify(arguments: Sequence[str]) -> None:
    from certood.cli_guard import certify as run_certify

    run_certify(arguments)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "report": report,
    "calibrate": calibrate,
    "certify": certify,
    "verify": verify,
    "data": data,
}


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        print(HELP)
        return
    if words[0] == "--version":
        print(f"certood {certood.__version__}")
        return
    try:
        if words[0] not in COMMANDS:
            raise CertoodError(f"no command is called {words[0]!r}; there are {', '.join(COMMANDS)}")
        COMMANDS[words[0]](words[1:])
    except CertoodError as error:
        if speaks():
            print(f"certood: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if speaks():
            print(f"certood: stopped{stop}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # certood data list | head
        sys.stderr.close()
