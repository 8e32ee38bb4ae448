"""What a training leaves as it runs: log, TensorBoard, pictures, checkpoints. Of several processes one writes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from certood.files import read_text, write_text
from certood.pictures import write_sheet
from certood.runs import Run

Row = dict[str, float]
SKIPPED = "skipped.txt"  # numbers of the out-images that are corrupt, as far as training met them


@final
class Journal:
    def __init__(self, run: Run, rows: list[Row], first: int, writes: bool) -> None:
        self.run, self.rows, self.writes = run, rows, writes
        listed = run.folder / SKIPPED
        self.skipped = {int(line) for line in read_text(listed).split()} if listed.is_file() else set[int]()
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

    def skip(self, corrupt: Collection[int]) -> str | None:
        """Note out-images that could not be read, and say so when they are the first of them."""
        first, new = not self.skipped, set(corrupt) - self.skipped
        self.skipped |= new
        if new and self.writes:
            write_text(self.run.folder / SKIPPED, "".join(f"{index}\n" for index in sorted(self.skipped)))
        if not new or not first:
            return None
        return f"out-image {min(new)} is corrupt; such images are skipped and listed in {self.run.folder / SKIPPED}"

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        if self.writes:
            self.run.write_state({**state, "rows": self.rows})

    def finish(self, weights: Mapping[str, Tensor], class_names: Sequence[str], card: str) -> None:
        if self.writes:
            self.board.close()
            self.run.finish(weights, class_names, card)
