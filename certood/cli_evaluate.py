"""`certood evaluate`: score runs against out-distribution sets, clean, attacked and certified."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from certood.arguments import Folder, data_folder, parse, shown
from certood.errors import CertoodError, LostProcess, ScoreError
from certood.metrics import Forms
from certood.paper import Published
from certood.ranks import leads
from certood.summary import Cell, Summary, summaries


@dataclass(frozen=True)
class Evaluate:
    """certood evaluate RUN... --out DIR: do runs tell their own images from others?

    Example: certood evaluate runs/good runs/oe --data images --out scores

    Every image is scored and certified; some of each set are attacked as well.

    The same command goes on where it was stopped, and keeps what is finished.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, shown("RUN", "")]
    """run folders; those of one in-distribution are attacked from each other's worst points too"""
    out: Path
    """folder to write scores to"""
    data: Folder = None
    """folder with image sets, NAME/SPLIT.parquet or other forms; also CERTOOD_DATA"""
    eps: Annotated[tuple[float, ...], shown("EPS", "(default: the recipe's)")] = ()
    """radii, in units of the [0, 1] pixel range"""
    out_sets: Annotated[str, shown("A,B", "(default: the paper's)")] = ""
    """out-distribution sets, names or paths, with commas"""
    attack: Literal["none", "quick", "standard", "paper"] = "standard"
    """how much is tried: up to 60, 340 or 5,500 gradients an image, some more for each other run"""
    attack_samples: int = 1000
    """images of each set that are attacked, always the same choice"""
    limit: int = 0
    """use only so many images of each set, always the same choice; 0 for all"""
    batch_size: int = 250
    """images that are attacked together"""
    seed: int = 0
    """of the choice of samples and of the attacks"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where to compute"""
    devices: int = 1
    """processes on this machine, a GPU each, that take batches in turn"""
    nodes: int = 1
    """machines; start the command on each with torchrun or srun"""
    json: bool = False
    """print the table for programs"""


def evaluate(arguments: Sequence[str]) -> None:
    parsed = parse(Evaluate, arguments, "evaluate")
    _check(parsed)
    folder = data_folder(parsed.data)
    names = tuple(name.strip() for name in parsed.out_sets.split(",") if name.strip())
    from certood.contest import Contest
    from certood.evaluation import Plan
    from certood.machine import Machine, launched
    from certood.team import Team, together

    plan = Plan(parsed.attack, parsed.attack_samples, parsed.seed, parsed.batch_size)
    began = time.monotonic()
    try:
        fabric = launched(Machine(parsed.device, parsed.devices, parsed.nodes))
        with Live(quiet=not fabric.is_global_zero) as live, together(fabric):
            limit, device, team = parsed.limit or None, fabric.device, Team(fabric)
            written = Contest(parsed.out, folder, plan, parsed.eps, names, limit, device, live, team).run(parsed.runs)
    except LostProcess as error:
        raise LostProcess(f"{error}; the same command goes on") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on") from None
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        raise ScoreError(
            f"memory ran out with batches of {plan.batch}; take a smaller --batch-size (what was done with this one "
            "is evaluated again)"
        ) from None
    if not leads():
        return
    found = summaries(written)
    if parsed.json:
        print(json.dumps([summary.to_json() for summary in found], indent=2))
        return
    print_table(found)
    print(f"Scores are in {parsed.out}; this took {time.monotonic() - began:.0f} s.")


def _check(parsed: Evaluate) -> None:
    if not parsed.runs:
        raise CertoodError("name the run folders to evaluate: certood evaluate RUN... --out DIR")
    for eps in parsed.eps:
        if not 0 < eps <= 1:
            raise CertoodError(f"eps is above 0 and at most 1, in units of the [0, 1] pixel range, not {eps:g}")
    if parsed.limit < 0:
        raise CertoodError(f"a limit is 0 (all images) or more, not {parsed.limit}")


@final
class Live:
    """A bar for each set; who attacks how many images; one line each for what was kept or left out."""

    def __init__(self, quiet: bool = False) -> None:
        self.console, self.quiet = Console(stderr=True), quiet
        columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
        shown = self.console.is_terminal and leads()
        self.bar = Progress(*columns, TextColumn("{task.fields[status]}"), console=self.console, disable=not shown)
        self.task: Any = None
        self.what, self.began, self.images = "", 0.0, 0

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.bar.stop()

    def say(self, line: str) -> None:
        if self.quiet:
            return
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin(self, what: str, images: int, done: int) -> None:
        self._end()
        self.what, self.began, self.images = what, time.monotonic(), images - done
        self.task = self.bar.add_task(what, total=images, completed=done, status="")

    def advance(self, images: int) -> None:
        self.bar.update(self.task, advance=images, status="")
        self.images -= images

    def watch(self, run: str, attack: str, still_open: int) -> None:
        self.bar.update(self.task, status=f"{run} {attack} {still_open}")

    def _end(self) -> None:
        if self.what and self.images == 0:
            self.say(f"{self.what}: {time.monotonic() - self.began:.0f} s")
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.what, self.task = "", None


def print_table(found: Sequence[Summary]) -> None:
    """The paper's layout, as many out-sets side by side as fit; under each row the paper's own numbers, if any."""
    console = Console(width=None if sys.stdout.isatty() else 80, markup=False, emoji=False, highlight=False)
    for in_set, eps in sorted({(summary.in_set, cell.eps) for summary in found for cell in summary.cells}):
        rows = [summary for summary in found if summary.in_set == in_set]
        cells = {(summary.name, cell.out_set): cell for summary in rows for cell in summary.cells if cell.eps == eps}
        out_sets = list(dict.fromkeys(out_set for _, out_set in cells))
        widest = max(len("  paper"), *(len(summary.name) for summary in rows))
        column = max(COLUMN, *(len(_short(out_set)) for out_set in out_sets))
        together = max(1, (console.width - widest - 7) // (column + 2))  # 7: of the accuracy
        for start in range(0, len(out_sets), together):
            shown = out_sets[start : start + together]
            first = start == 0
            console.print(_table(f"in: {in_set}, eps {eps:g}" if first else None, rows, shown, cells))
    for summary in found:
        if not summary.cells:
            console.print(f"{summary.name}: accuracy {summary.accuracy:.1%} on {summary.in_set}")


def _table(
    title: str | None, rows: Sequence[Summary], out_sets: Sequence[str], cells: dict[tuple[str, str], Cell]
) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="")
    table.add_column("\nrun", overflow="fold")
    table.add_column("\nacc", justify="right")
    for out_set in out_sets:
        table.add_column(f"{_short(out_set)}\n{_three('AUC', 'AAUC', 'GAUC')}", justify="right", no_wrap=True)
    for summary in rows:
        mine = [cells.get((summary.name, out_set)) for out_set in out_sets]
        table.add_row(summary.name, _percent(summary.accuracy), *(_ours(cell.aucs) if cell else "" for cell in mine))
        papers = [cell.paper if cell else None for cell in mine]
        known = next((paper for paper in papers if paper), None)
        if known:
            table.add_row("  paper", f"{known.accuracy:.1f}", *map(_theirs, papers), style="dim")
    return table


COLUMN = 17  # characters of three numbers


def _short(name: str) -> str:
    return name if len(name) <= 2 * COLUMN else f"{name[: 2 * COLUMN - 3]}..."


def _ours(aucs: Forms[float]) -> str:
    return _three(_percent(aucs.clean), _percent(aucs.adversarial), _percent(aucs.guaranteed))


def _theirs(paper: Published | None) -> str:
    return _three(f"{paper.auc:.1f}", f"{paper.aauc:.1f}", f"{paper.gauc:.1f}") if paper else ""


def _three(*texts: str) -> str:
    return " ".join(f"{text:>5}" for text in texts)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
