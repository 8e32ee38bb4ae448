"""Filing the scores of one image set at one radius, for all runs: what is there, what is left to do."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, final

import numpy as np
import torch
from numpy.typing import NDArray

from certood.attacks import BUDGETS
from certood.data.sources import ImageSet
from certood.detectors import Detector
from certood.errors import ScoreError
from certood.evaluation import Batch, Plan, evaluate
from certood.files import write
from certood.scores import ScoreFile, Scores
from certood.team import Team


class Show(Protocol):
    """Whoever wants to see how it goes on."""

    def say(self, line: str) -> None: ...
    def begin(self, what: str, images: int, done: int) -> None: ...
    def advance(self, images: int) -> None: ...
    def watch(self, run: str, attack: str, still_open: int) -> None: ...


@final
@dataclass(frozen=True)
class Entrant:
    """A run that is evaluated."""

    scores: Scores
    detector: Detector
    weights: str  # digest

    @property
    def name(self) -> str:
        return self.scores.name


@final
@dataclass
class Spent:
    """What a file has cost: batch by batch, so that a killed evaluation counts none of them twice, and none not."""

    gradients: list[int]  # of each attacked batch
    seconds: float  # before this process
    since: float

    @classmethod
    def before(cls, entrant: Entrant, key: str, batches: int) -> Self:
        known = entrant.scores.meta()["files"].get(key, {}) if batches else {}
        return cls(known.get("gradients by batch", [])[:batches], known.get("seconds", 0.0), time.monotonic())


@final
@dataclass(frozen=True)
class Filing:
    """`in_data` is the digest of the in-distribution set whose scores say when an attack is enough."""

    entrants: tuple[Entrant, ...]
    images: ImageSet
    eps: float
    plan: Plan
    in_data: str

    @property
    def key(self) -> str:
        return f"{self.eps:g}/{self.images.name}"

    @property
    def what(self) -> str:
        return f"{self.images.name}, eps {self.eps:g}" if self.eps else f"{self.images.name}, clean"

    def run(self, in_scores: Mapping[str, NDArray[np.float64]], device: torch.device, show: Show, team: Team) -> None:
        """Do what is left. The processes of a team take batches in turn, and the first of them writes, in order."""
        batches = self.plan.batches(len(self.images))
        ends = np.cumsum([0, *map(len, batches)])
        left, first = team.told(self._left(ends, show) if team.first else ([], 0))
        entrants = [entrant for entrant in self.entrants if entrant.name in left]
        if not entrants:
            return
        spent = {entrant.name: Spent.before(entrant, self.key, first) for entrant in entrants} if team.first else {}
        if team.first:
            for entrant in entrants:
                self._file(entrant).keep(int(ends[first]))
                self._note(entrant, spent[entrant.name])
            self._keep_images(batches)
        show.begin(self.what, len(self.images), int(ends[first]))
        detectors = {entrant.name: entrant.detector for entrant in entrants}
        steps = evaluate(
            detectors, self.images, self.eps, self.plan, in_scores, device, first + team.number, show.watch, team.size
        )
        try:
            for start in range(first, len(batches), team.size):
                for number, step in enumerate(team.collected(_on_the_host(next(steps, None))), start):
                    for entrant in entrants if step else ():
                        self._write(entrant, step[entrant.name], int(ends[number]), spent[entrant.name])
                    show.advance(len(batches[number]) if step else 0)
        finally:
            for entrant in entrants if team.first else ():
                self._note(entrant, spent[entrant.name])

    def _left(self, ends: NDArray[np.int64], show: Show) -> tuple[list[str], int]:
        """Who is to be evaluated, from which batch on."""
        batches = len(ends) - 1
        done = {entrant.name: self._batches_done(entrant, ends, show) for entrant in self.entrants}
        left = [name for name in done if done[name] < batches]
        if left and self._transfers:
            left = list(done)  # who is finished is what the others are attacked from
        kept = [name for name in done if name not in left]
        if kept:
            show.say(f"{self.what}: {', '.join(kept)} finished before; weights, data and settings are the same")
        return left, min((done[name] for name in left), default=batches)

    def settings(self, entrant: Entrant) -> dict[str, Any]:
        """All that the rows of a file depend on."""
        others = {other.name: other.weights for other in self.entrants if other is not entrant}
        return {
            "weights": entrant.weights,
            "data": self.images.digest,
            "in-distribution data": self.in_data,
            "eps": self.eps,
            "sound bounds": entrant.detector.sound,
            "attack": self._attack,
            "steps of the attack": _digest(repr(BUDGETS.get(self._attack, ()))),
            "attack samples": self.plan.attacked,
            "seed": self.plan.seed,
            "batch size": self.plan.batch,
            "transfer from": others if self._transfers else {},
        }

    @property
    def _attack(self) -> str:
        return self.plan.budget if self.eps else "none"

    @property
    def _transfers(self) -> bool:
        return any(each.start == "transfer" for each in BUDGETS.get(self._attack, ()))

    def _file(self, entrant: Entrant) -> ScoreFile:
        return entrant.scores.file(self.eps, self.images.name)

    def _batches_done(self, entrant: Entrant, ends: NDArray[np.int64], show: Show) -> int:
        file, now = self._file(entrant), self.settings(entrant)
        before = entrant.scores.meta()["files"].get(self.key, {}).get("settings", {})
        rows = file.rows()
        if rows and before != now:
            changed = [part for part in now if before.get(part) != now[part]]
            show.say(f"{self.what}: {entrant.name} is evaluated again, since {', '.join(changed)} changed")
            return 0
        whole = file.agreeing(np.concatenate(self.plan.batches(len(self.images))).tolist()) if rows else 0
        if whole < rows:
            show.say(f"{self.what}: {file.path} is damaged after row {whole} and evaluated again from there")
            rows = min(whole, len(self.images) - 1)  # rows too many are no end of a file either
        if rows and self._attack != "none":
            attacked = self.plan.first(len(self.images))
            if not file.holds_points(min(rows, attacked), (attacked, *self.images.shape)):
                show.say(f"{self.what}: {file.points} is damaged or gone; {entrant.name} is evaluated again")
                return 0
        return int(np.searchsorted(ends, rows, side="right")) - 1

    def _note(self, entrant: Entrant, spent: Spent) -> None:
        """What is known of the file, for whoever reads it."""
        meta = entrant.scores.meta()
        meta["files"][self.key] = {
            "settings": self.settings(entrant),
            "rows": len(self.images),
            "attacked": self.plan.first(len(self.images)) if self._attack != "none" else 0,
            "classes": list(self.images.class_names),
            "images": self._images_path(entrant).name,
            "seconds": round(spent.seconds + time.monotonic() - spent.since, 2),
            "gradients": sum(spent.gradients),
            "gradients by batch": spent.gradients,
        }
        entrant.scores.write_meta(meta)

    def _write(self, entrant: Entrant, batch: Batch, at: int, spent: Spent) -> None:
        """Rows come last: whatever else a kill leaves of a batch without them is written over."""
        file = self._file(entrant)
        if batch.points is not None:
            file.append_points(batch.points.numpy(), at, self.plan.first(len(self.images)))
            spent.gradients.append(batch.gradients)
            self._note(entrant, spent)
        file.append(batch.rows)

    def _images_path(self, entrant: Entrant) -> Path:
        which = f"{self.images.digest} {self.plan.seed} {self.plan.first(len(self.images))}"
        return entrant.scores.folder.parent / "images" / f"{_digest(which)}.npy"

    def _keep_images(self, batches: list[NDArray[np.int64]]) -> None:
        """The images of the first rows, for whoever looks at the scores later."""
        path = self._images_path(self.entrants[0])
        if path.exists():
            return
        rows = np.concatenate(batches)[: self.plan.first(len(self.images))]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScoreError(f"cannot make {path.parent}: {error.strerror}") from None
        write(path, lambda beside: _save(beside, self.images.images(rows)))


def _on_the_host(step: dict[str, Batch] | None) -> dict[str, Batch]:
    """As it travels to the first process; nothing where a process had no batch."""
    return {
        name: batch if batch.points is None else batch._replace(points=batch.points.cpu())
        for name, batch in (step or {}).items()
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _save(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array)
