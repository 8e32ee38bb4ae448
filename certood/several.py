"""Several trainings, by one process or many: what is finished is kept, what was stopped goes on, what fails is told."""

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import final

import torch
from rich.console import Console

from certood.errors import CertoodError, Held, RunError, TrainingFailed
from certood.files import write_text
from certood.locks import locked
from certood.machine import Machine
from certood.recipes import Recipe
from certood.runs import Run
from certood.training import train

FAILED = "failed.txt"  # in a run folder: why its training was given up
GRACE = 30.0  # seconds for a checkpoint
PATIENCE = 5.0  # seconds between two looks at runs that other processes train


@final
class Stages:
    """A line for each part of a long work: how many there are, and the time since it began."""

    def __init__(self, total: int, quiet: bool = False) -> None:
        self.total, self.number, self.began = total, 0, time.monotonic()
        self.console, self.waited = Console(stderr=True, quiet=quiet), ""

    def begin(self, text: str) -> None:
        self.number += 1
        self.say(text)

    def wait(self, text: str) -> None:
        """Once, however long it takes."""
        if text != self.waited:
            self.say(text)
        self.waited = text

    def say(self, text: str) -> None:
        minutes = f"{(time.monotonic() - self.began) / 60:.1f} min"
        line = f"[{self.number:>{len(str(self.total))}}/{self.total}] {minutes:>9}  {text}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def train_all(
    planned: Sequence[tuple[str, Recipe]], out: Path, data: Path | None, machine: Machine, stages: Stages
) -> tuple[list[str], list[str]]:
    """Names of the runs in `out` that are finished, and of those that diverged or collapsed.

    Any number of processes may do this at once, here or on machines that share the folder: each takes the next run that
    nobody trains, by the lock of its folder. A lock goes with its process, so a run whose process died is taken up
    again by whoever is left. A run that is there with another recipe is an error before anything is trained.
    """
    began = time.time()
    for name, recipe in planned:
        Run(out / name).prepare(recipe, resume=True)
    finished, failed, waiting = list[str](), list[str](), list(planned)
    while waiting:
        elsewhere = []
        for name, recipe in waiting:
            run = Run(out / name)
            if run.finished():
                stages.begin(f"{name} is there")
                finished.append(name)
            elif _failed_since(run, began):
                stages.begin(f"{name} failed in another process")
                failed.append(name)
            elif (start := _start(recipe, out)) in failed:
                stages.begin(f"{name} cannot start: {start} failed")
                failed.append(name)
            elif start in {before for before, _ in waiting} and not Run(out / start).finished():
                elsewhere.append((name, recipe))
            else:
                try:
                    _train(name, recipe, run, data, machine, stages)
                    finished.append(name)
                except Held:
                    elsewhere.append((name, recipe))
                except TrainingFailed as error:
                    stages.say(f"{name} {error}")
                    write_text(run.folder / FAILED, f"{error}\n")
                    failed.append(name)
        if elsewhere and len(elsewhere) == len(waiting):
            stages.wait(f"waiting for {', '.join(name for name, _ in elsewhere)}, which other processes train")
            time.sleep(PATIENCE)
        waiting = elsewhere
    in_order = [name for name, _ in planned]
    return sorted(finished, key=in_order.index), sorted(failed, key=in_order.index)


def _train(name: str, recipe: Recipe, run: Run, data: Path | None, machine: Machine, stages: Stages) -> None:
    with locked(run.folder, "training"):  # before anything is said or loaded
        finished, resumable = run.finished(), run.resumable()
    if finished:
        stages.begin(f"{name} is there")
        return
    stages.begin(f"training {name}, {recipe.epochs} epochs" + (" from its checkpoint" * resumable))
    (run.folder / FAILED).unlink(missing_ok=True)
    train(recipe, run.folder, data, machine, resume=True, quiet=True)


def _start(recipe: Recipe, out: Path) -> str:
    """The run of this folder that another starts from, if it does."""
    path = Path(recipe.start_from)
    return path.name if recipe.start_from and path.parent.resolve() == out.resolve() else ""


def _failed_since(run: Run, began: float) -> bool:
    try:
        return (run.folder / FAILED).stat().st_mtime >= began
    except FileNotFoundError:
        return False


def train_in_turn(
    planned: Sequence[tuple[str, Recipe]], out: Path, data: Path | None, machine: Machine, stages: Stages, jobs: int
) -> tuple[list[str], list[str]]:
    """`train_all` by so many processes of this machine; the first goes on with what others leave behind."""
    if jobs < 1:
        raise RunError(f"jobs are at least 1, not {jobs}")
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    threads, gpus = max(1, torch.get_num_threads() // jobs), torch.cuda.device_count()
    helpers = []
    try:
        for number in range(1, jobs):
            os.environ["OMP_NUM_THREADS"] = str(threads)
            if gpus > 1:
                os.environ["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
            helper = context.Process(target=_help, args=(planned, out, data, machine, stages.total))
            helper.start()
            helpers.append(helper)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
    if helpers:
        torch.set_num_threads(threads)
    try:
        return train_all(planned, out, data, machine, stages)
    finally:
        stopped = sys.exc_info()[0]
        for helper in helpers:
            if stopped is KeyboardInterrupt:  # which a terminal sends to all, and which they meet with a checkpoint
                helper.join(GRACE)
            if stopped is not None:
                helper.terminate()
            helper.join()


def _help(planned: Sequence[tuple[str, Recipe]], out: Path, data: Path | None, machine: Machine, total: int) -> None:
    with suppress(KeyboardInterrupt, CertoodError):  # the first process meets the same and says so
        train_all(planned, out, data, machine, Stages(total, quiet=True))
