"""An evaluation from start to end: which runs, against which sets, at which radii.

Runs of one in-distribution are evaluated together, since each is attacked from what was found against the others.
"""

import platform
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, final

import torch

import certood
from certood.assembly import detector_of
from certood.card import title
from certood.data import entries
from certood.data.sources import ImageSet, load
from certood.errors import MissingSplit, RunError, ScoreError
from certood.evaluation import Plan
from certood.filing import Entrant, Filing, Show
from certood.locks import locked
from certood.paper import ADDITIONAL, MAIN, STANDS_IN
from certood.recipes import Recipe
from certood.runs import Run, Trained, digest
from certood.scores import FORMAT, Scores
from certood.team import ALONE, Team

NOISE = ("uniform_noise", "smooth_noise")
OUT_SETS = {
    **{name: MAIN[name] + ADDITIONAL[name] for name in MAIN},
    "demo_digits": ("demo_letters", "demo_photos", *NOISE),
}
TRAINING_IMAGES = 10_000  # evaluated of an out-set that has a training part only, as the 80 million tiny images


class Form(NamedTuple):
    """What runs must share to be compared: the in-distribution, in the form that the networks take."""

    in_set: str
    channels: int
    size: int
    class_names: tuple[str, ...]


@final
@dataclass(frozen=True)
class Contest:
    out: Path
    data: Path | None
    plan: Plan
    eps: tuple[float, ...]  # none: those of the recipes
    out_sets: tuple[str, ...]  # none: those of the paper
    limit: int | None
    device: torch.device
    show: Show
    team: Team = ALONE

    def run(self, folders: Sequence[Path]) -> list[Scores]:
        """Evaluate; the folders of scores that it wrote or found finished."""
        runs = {folder: Run(folder).load() for folder in folders}
        names = [self._name(folder) for folder in folders]
        if len(set(names)) < len(names):
            raise ScoreError(f"runs are filed under their folders' names, and two are alike: {', '.join(names)}")
        groups: dict[Form, list[Path]] = {}
        for folder, trained in runs.items():
            recipe = trained.recipe
            form = Form(recipe.in_set, recipe.channels, recipe.size, trained.class_names)
            groups.setdefault(form, []).append(folder)
        with ExitStack() as held:
            for name in names if self.team.first else ():
                held.enter_context(locked(self.out / name, "evaluating"))
            for form, members in groups.items():
                self._group(form, {folder: runs[folder] for folder in members})
        return [Scores(self.out / name) for name in names]

    def _name(self, folder: Path) -> str:
        name = folder.resolve().name
        if name == "images" or any(character in name for character in ',"\n\r'):
            raise RunError(f"scores are filed under the name of the run's folder, which cannot be {name!r}; rename it")
        return name

    def _group(self, form: Form, runs: dict[Path, Trained]) -> None:
        radii = sorted(set(self.eps) or {trained.recipe.eps for trained in runs.values()})
        if len({f"{eps:g}" for eps in radii}) < len(radii):
            alike = ", ".join(map(str, radii))
            raise ScoreError(f"scores are filed under eps with six digits, and two are alike: {alike}; leave one out")
        in_set = self._load(form.in_set, "test", form, self.limit)
        if in_set.class_names != form.class_names:
            raise ScoreError(f"{form.in_set} has other classes than the runs: {', '.join(in_set.class_names)}")
        skipped: dict[str, str] = {}
        out_sets = self._out_sets(form, next(iter(runs.values())).recipe, skipped)
        called = [out_set.name for out_set in out_sets]
        if len(set(called)) < len(called):
            raise ScoreError(f"scores are filed under the out-sets' names, and two are alike: {', '.join(called)}")
        entrants = tuple(self._entrant(folder, trained, in_set, skipped) for folder, trained in runs.items())
        Filing(entrants, in_set, 0.0, self.plan, in_set.digest).run({}, self.device, self.show, self.team)
        in_scores = self.team.told(
            {entrant.name: entrant.scores.file(0.0, in_set.name).read().score for entrant in entrants}
            if self.team.first
            else {}
        )
        for out_set in out_sets:
            for eps in radii:
                Filing(entrants, out_set, eps, self.plan, in_set.digest).run(
                    in_scores, self.device, self.show, self.team
                )

    def _entrant(self, folder: Path, trained: Trained, in_set: ImageSet, skipped: dict[str, str]) -> Entrant:
        scores = Scores(self.out / self._name(folder))
        weights = digest(trained.network.state_dict())
        if self.team.first:
            self._note(scores, trained, weights, in_set, skipped)
        return Entrant(scores, detector_of(trained, self.device), weights)

    def _note(self, scores: Scores, trained: Trained, weights: str, in_set: ImageSet, skipped: dict[str, str]) -> None:
        versions = {"certood": certood.__version__, "torch": torch.__version__, "python": platform.python_version()}
        scores.write_meta({
            "format": FORMAT,
            "name": scores.name,
            "title": title(trained.recipe),
            "recipe": asdict(trained.recipe),
            "weights": weights,
            "classes": list(trained.class_names),
            "in_set": in_set.name,
            "skipped": skipped,
            "versions": versions,
            "files": scores.meta().get("files", {}),
        })  # fmt: skip

    def _out_sets(self, form: Form, recipe: Recipe, skipped: dict[str, str]) -> list[ImageSet]:
        """Those asked for, or those of the paper that are here; `skipped` takes the others and how to get them."""
        if self.out_sets:
            return [self._out_set(name, form) for name in self.out_sets]
        found: list[ImageSet | None] = []
        for name in OUT_SETS.get(form.in_set, tuple(dict.fromkeys((recipe.out_set, *NOISE)))):
            found.append(self._if_here(name, form))
            if found[-1] is None:
                entry, stand_in = entries.find(name), STANDS_IN.get(name)
                skipped[name] = entry.obtain if entry else "Name its folder or file with --data."
                found.append(self._if_here(stand_in, form) if stand_in else None)
                instead = f", with {stand_in} in its place" if found[-1] else ""
                self.show.say(f"without {name}{instead}. To get it: {skipped[name]}")
        return [image_set for image_set in found if image_set is not None]

    def _if_here(self, name: str, form: Form) -> ImageSet | None:
        try:
            return self._out_set(name, form)
        except MissingSplit:
            return None

    def _out_set(self, name: str, form: Form) -> ImageSet:
        entry = entries.find(name)
        if entry is not None and "test" not in entry.sizes:
            return self._load(name, "train", form, min(self.limit or TRAINING_IMAGES, TRAINING_IMAGES))
        return self._load(name, "test", form, self.limit)

    def _load(self, name: str, split: str, form: Form, limit: int | None) -> ImageSet:
        return load(name, split, folder=self.data, channels=form.channels, size=form.size, limit=limit)
