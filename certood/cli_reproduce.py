"""`certood reproduce`: all systems of the paper on one in-distribution, from training to report, in one command."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from certood.arguments import Folder, data_folder, listed, parse, shown
from certood.averages import as_csv, as_markdown, averages
from certood.errors import Held, RecipeError, TrainingFailed
from certood.files import write_text
from certood.locks import locked
from certood.paper import RADII
from certood.recipes import RECIPES, Scale
from certood.scores import Scores
from certood.systems import folder_name, planned, seeds_of, system, systems_of


@dataclass(frozen=True)
class Reproduce:
    """certood reproduce NAME --out DIR: the paper's table of one in-distribution.

    Example: certood reproduce mnist --data images --out mnist --seeds 0,1,2

    Trains every system, attacks and certifies them together, writes a report.

    The same command goes on where it was stopped, and keeps what is finished.
    """

    name: Annotated[str, tyro.conf.Positional, shown("NAME", "(required)")]
    """a recipe: mnist, svhn, cifar10, demo or mnist-shapes"""
    out: Path
    """folder for runs, scores and report"""
    data: Folder = None
    """folder with image sets, NAME/SPLIT.parquet or other forms; also CERTOOD_DATA"""
    scale: Scale = "cpu"
    """paper: exactly as published, for GPUs and days; cpu: for two cores and hours"""
    seeds: Annotated[str, shown("N,M", "(default: 0)")] = "0"
    """of everything random, one run of each system for each"""
    systems: Annotated[str, shown("A,B", "(default: all)")] = ""
    """which systems, as plain,oe,good80,good80+shapes"""
    out_set: Annotated[str, shown("NAME", "(default: the recipe's)")] = ""
    """to train against; at the paper's scale that is tiny_images, which is not offered any more"""
    epochs: Annotated[int, shown("N", "(default: the recipe's)")] = 0
    """of every run, for a quick look"""
    attack: Literal["none", "quick", "standard", "paper"] = "standard"
    """how much is tried on an image, as in certood evaluate"""
    attack_samples: int = 1000
    """images of each set that are attacked"""
    limit: int = 0
    """evaluate only so many images of each set, always the same choice; 0 for all"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where to compute"""
    jobs: int = 1
    """processes that take the trainings in turn, a GPU each if there are several"""


def reproduce(arguments: Sequence[str]) -> None:
    parsed = parse(Reproduce, arguments, "reproduce")
    if parsed.name not in RECIPES:
        raise RecipeError(f"no recipe is called {parsed.name!r}; there are {', '.join(RECIPES)}")
    if parsed.epochs < 0 or parsed.limit < 0:
        raise RecipeError(f"epochs and limit are 0 or more, not {parsed.epochs} and {parsed.limit}")
    try:
        _reproduce(parsed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on") from None


def _reproduce(parsed: Reproduce) -> None:
    chosen = tuple(map(system, listed(parsed.systems))) or systems_of(parsed.name, parsed.scale)
    seeds = seeds_of(listed(parsed.seeds)) or (0,)
    data, runs, scores = data_folder(parsed.data), parsed.out / "runs", parsed.out / "scores"
    from certood.assembly import refuse_missing
    from certood.cli_evaluate import Live, print_table
    from certood.contest import Contest
    from certood.evaluation import Plan
    from certood.machine import Machine, device_of
    from certood.report.page import report
    from certood.several import Stages, train_in_turn
    from certood.summary import summaries

    plan = planned(parsed.name, parsed.scale, chosen, seeds, parsed.epochs or None, runs, parsed.out_set)
    refuse_missing((recipe for _, recipe in plan), data)

    attacks = Plan(parsed.attack, parsed.attack_samples)  # what is wrong with it should not be found out hours later
    stages = Stages(len(plan) + len(seeds) + 1)
    finished, failed = train_in_turn(plan, runs, data, Machine(parsed.device), stages, parsed.jobs)
    try:
        with locked(scores, "evaluating"):
            written: dict[str, list[Scores]] = {}
            for seed in seeds:
                names = {folder_name(each.name, seed): each.name for each in chosen}
                entrants = [runs / name for name in names if name in finished]
                stages.begin(f"evaluating {len(entrants)} runs of seed {seed} against each other")
                radii, limit = RADII.get(plan[0][1].in_set, ()), parsed.limit or None
                with Live() as live:
                    contest = Contest(scores, data, attacks, radii, (), limit, device_of(parsed.device), live)
                    for filed in contest.run(entrants):
                        written.setdefault(names[filed.name], []).append(filed)
            stages.begin("writing the report")
            page = report(scores, parsed.out / "report")
            found = {name: summaries(of_seeds) for name, of_seeds in written.items()}
            over_seeds = averages(found)
            write_text(parsed.out / "table.md", as_markdown(over_seeds))
            write_text(parsed.out / "table.csv", as_csv(over_seeds))
    except Held:
        print(f"Another process evaluates into {scores} and writes the report.")
        return
    print_table([each for of_seeds in found.values() for each in of_seeds])
    print(f"\n{page} shows all of it: open it in a browser.")
    print(f"{parsed.out / 'table.md'} holds the numbers, mean and standard deviation where there are several seeds.")
    if failed:
        raise TrainingFailed(f"{', '.join(failed)} failed in training and are left out; their log.csv tells how")
