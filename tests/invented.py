"""Scores of runs that never were: whole folders in a moment, of any size, the same every time."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certood.recipes import MethodName, recipe
from certood.scores import COLUMNS, FORMAT, Scores

DIGITS = [str(digit) for digit in range(10)]
LETTERS = [chr(ord("A") + at) for at in range(26)]


class Kind(NamedTuple):
    """How a method behaves: how sure it is of out-images, what an attack adds, and what is guaranteed."""

    method: MethodName
    quantile: float
    title: str
    outside: float
    attack: float
    bound: float  # beyond the attack; inf: no guarantee


KINDS = {
    "plain": Kind("plain", 1.0, "Plain", 1.0, 5.0, np.inf),
    "oe": Kind("oe", 1.0, "OE", -2.0, 5.0, np.inf),
    "good80": Kind("good", 0.8, "GOOD_80", -2.0, 0.2, 0.6),
    "good100": Kind("good", 1.0, "GOOD_100", -2.0, 0.1, 0.2),
}


def invent(
    folder: Path,
    runs: tuple[str, ...] = tuple(KINDS),
    out_sets: tuple[str, ...] = ("emnist_letters", "uniform_noise"),
    radii: tuple[float, ...] = (0.3,),
    rows: int = 120,
    attacked: int = 40,
    in_set: str = "mnist",
) -> Path:
    """Runs on ten digits against letters and noise, 8 x 8 pixels."""
    for name in runs:
        _run(Scores(folder / name), KINDS[name], in_set, out_sets, radii, rows, min(attacked, rows))
    return folder


def _run(
    scores: Scores,
    kind: Kind,
    in_set: str,
    out_sets: tuple[str, ...],
    radii: tuple[float, ...],
    rows: int,
    attacked: int,
) -> None:
    draw = np.random.default_rng(len(kind.title))
    files: dict[str, Any] = {}
    for eps, image_set in ((0.0, in_set), *((eps, out_set) for out_set in out_sets for eps in radii)):
        classes = DIGITS if image_set == in_set else LETTERS if "letters" in image_set else []
        _images(scores.folder.parent / "images" / f"{image_set}.npy", attacked)
        score = draw.normal(kind.outside if eps else 5.0, 2.0, rows)
        rise = np.abs(draw.normal(kind.attack, 0.1, rows)) * eps / 0.3
        adversarial = np.where(np.arange(rows) < attacked, score + rise, np.nan) if eps else score
        certified = score + rise + kind.bound if eps else score
        labels = np.arange(rows) % len(classes) if classes else np.full(rows, -1)
        answers = np.where(draw.random(rows) < 0.98, np.arange(rows) % 10, 0)
        _rows(scores.file(eps, image_set).path, labels, answers, score, adversarial, certified)
        if eps:
            points = draw.random((attacked, 1, 8, 8)).astype(np.float32)
            np.save(scores.file(eps, image_set).points, points)
        settings = {
            "weights": "f" * 64, "data": "d" * 64, "in-distribution data": "d" * 64, "eps": eps,
            "attack": "standard" if eps else "none", "attack samples": attacked, "seed": 0, "batch size": 10,
            "transfer from": {}, "sound bounds": True,
        }  # fmt: skip
        files[f"{eps:g}/{image_set}"] = {
            "settings": settings, "rows": rows, "attacked": attacked if eps else 0, "classes": classes,
            "images": f"{image_set}.npy", "seconds": 1.0, "gradients": 10 * attacked if eps else 0,
        }  # fmt: skip
    made = replace(recipe("mnist", kind.method), quantile=kind.quantile)
    scores.write_meta({
        "format": FORMAT, "name": scores.name, "title": kind.title, "recipe": asdict(made), "weights": "f" * 64,
        "classes": DIGITS, "in_set": in_set, "skipped": {"omniglot": "certood data info omniglot says how"},
        "versions": {"certood": "0.0.0", "torch": "2.13.0", "python": "3.11.0"}, "files": files,
    })  # fmt: skip


def _images(path: Path, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.random.default_rng(0).integers(0, 256, (count, 1, 8, 8), dtype=np.uint8))


def _rows(path: Path, *columns: NDArray[Any]) -> None:
    """Faster than `ScoreFile.append`, for the sake of a million rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    labels, answers, score, adversarial, certified = columns
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")
        for index, row in enumerate(
            zip(labels.tolist(), answers.tolist(), score.tolist(), certified.tolist(), strict=True)
        ):
            found = adversarial[index]
            file.write(
                f"{index},{row[0]},{row[1]},{row[2]!r},{'' if np.isnan(found) else repr(float(found))},{row[3]!r},\n"
            )
