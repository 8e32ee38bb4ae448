"""What a long run shows: a live bar in a terminal, a line an epoch anywhere else."""

import math
import time
from collections.abc import Mapping
from typing import Any, Self, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from certood.tally import Tally


@final
class Progress:
    """Steps of `epochs` epochs; rate and time left count from where this process began, not from a checkpoint."""

    def __init__(self, epochs: int, per_epoch: int, start: int, shown: bool = True) -> None:
        self.epochs, self.per_epoch, self.start = epochs, per_epoch, start
        self.console = Console(stderr=True, quiet=not shown)
        self.live_shown = shown and self.console.is_terminal
        self.began = self.shown = time.monotonic()
        self.status = Text("")
        columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn())
        self.bar = Bar(*columns, TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), console=self.console)
        self.task = self.bar.add_task("", total=epochs * per_epoch, completed=start, rate="")
        self.live = Live(Group(self.bar, self.status), console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self.live_shown:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.live_shown:
            self.live.stop()

    def step(self, done: int, kappa: float, eps: float, tally: Tally) -> None:
        if not self.live_shown:
            return
        rate = (done - self.start) / max(time.monotonic() - self.began, 1e-9)
        epoch = min((done - 1) // self.per_epoch + 1, self.epochs)
        self.bar.update(self.task, completed=done, description=f"epoch {epoch}/{self.epochs}", rate=f"{rate:.1f}/s")
        if time.monotonic() - self.shown > 0.25:  # reading the sums waits for the device
            self.shown = time.monotonic()
            self.status.plain = f"kappa {kappa:.3f} eps {eps:.3f} {_numbers(tally.means(everywhere=False))}"

    def epoch(self, row: Mapping[str, float]) -> None:
        line = f"epoch {int(row['epoch']) + 1:>3}/{self.epochs}  {row['seconds']:.0f} s"
        line += f"  kappa {row['kappa']:.3g}  eps {row['eps']:.3g}"
        self.say(f"{line}  {_numbers(row)}" if not self.console.is_terminal else f"{line}\n  {_numbers(row)}")

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _numbers(means: Mapping[str, float]) -> str:
    """What is no number, because nothing was measured, is left out."""
    shown = [f"loss {means['loss_in']:.3f}", f"accuracy {means['accuracy']:.1%}"]
    if not math.isnan(means["loss_out"]):
        shown[0] += f" + {means['loss_out']:.3f}"
    if not math.isnan(means["confidence_out"]):
        shown.append(f"out {means['confidence_out']:.1%} <= {means['bound_out']:.1%}")
    return ", ".join(shown)
