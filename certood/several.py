"""Several trainings, one after the other: what is finished is kept, what was stopped goes on, what fails is told."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import final

from rich.console import Console

from certood.errors import TrainingFailed
from certood.machine import Machine
from certood.recipes import Recipe
from certood.runs import Run
from certood.training import train


@final
class Stages:
    """A line for each part of a long work: how many there are, and the time since it began."""

    def __init__(self, total: int) -> None:
        self.total, self.number, self.began, self.console = total, 0, time.monotonic(), Console(stderr=True)

    def begin(self, text: str) -> None:
        self.number += 1
        self.say(text)

    def say(self, text: str) -> None:
        minutes = f"{(time.monotonic() - self.began) / 60:.1f} min"
        line = f"[{self.number:>{len(str(self.total))}}/{self.total}] {minutes:>9}  {text}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def train_all(
    planned: Sequence[tuple[str, Recipe]], out: Path, data: Path | None, machine: Machine, stages: Stages
) -> tuple[list[str], list[str]]:
    """Names of the runs in `out` that are finished, and of those that diverged or collapsed.

    A run that is there with another recipe is an error before anything is trained.
    """
    for name, recipe in planned:
        Run(out / name).prepare(recipe, resume=True)
    finished, failed = [], []
    for name, recipe in planned:
        run = Run(out / name)
        if run.finished():
            stages.begin(f"{name} is there")
        else:
            stages.begin(f"training {name}, {recipe.epochs} epochs" + (" from its checkpoint" * run.resumable()))
            try:
                train(recipe, run.folder, data, machine, resume=True, quiet=True)
            except TrainingFailed as error:
                stages.say(f"{name} {error}")
                failed.append(name)
                continue
        finished.append(name)
    return finished, failed
