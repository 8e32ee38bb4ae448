"""What a training leaves as it runs: log, TensorBoard, pictures, checkpoints. Of several processes one writes."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from certood.pictures import write_sheet
from certood.runs import Run

Row = dict[str, float]


@final
class Journal:
    def __init__(self, run: Run, rows: list[Row], first: int, writes: bool) -> None:
        self.run, self.rows, self.writes = run, rows, writes
        if writes:
            run.write_log(rows)
            self.board = SummaryWriter(str(run.folder / "tensorboard"), purge_step=first)

    def sheet(self, name: str, parts: Sequence[tuple[str, Tensor]]) -> None:
        if self.writes:
            write_sheet(self.run.folder / name, parts)

    def epoch(self, row: Row, step: int) -> None:
        self.rows.append(row)
        if self.writes:
            self.run.write_log(self.rows)
            for name, value in row.items():
                self.board.add_scalar(name, value, step)

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        if self.writes:
            self.run.write_state({**state, "rows": self.rows})

    def finish(self, weights: Mapping[str, Tensor], class_names: Sequence[str], card: str) -> None:
        if self.writes:
            self.board.close()
            self.run.finish(weights, class_names, card)
