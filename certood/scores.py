"""Score files: one row for each evaluated sample, which is all that a report reads. No torch in here.

    DIR/<run>/meta.json          what was run, and on what
    DIR/<run>/<eps>/<set>.csv    rows; the in-distribution set stands under eps 0
    DIR/<run>/<eps>/<set>.npy    the worst points found, of the rows that were attacked: they come first
    DIR/images/<digest>.npy      the images of those rows, uint8, or float32 where they are drawn noise

Scores are log-odds of the confidence. `adversarial` is empty where a sample was not attacked.
"""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from certood.contents import check, stays_inside
from certood.errors import ScoreError
from certood.files import read_json, reason, write, write_text

COLUMNS = ("index", "label", "prediction", "score", "adversarial", "certified", "attack")
HEADER = ",".join(COLUMNS) + "\n"
FORMAT = 1
# What meta.json must hold; more may stand there.
FILE = {
    "settings": {"weights": str, "data": str, "in-distribution data": str, "eps": float},
    **{"rows": int, "gradients": int, "seconds": float},
    **{"attacked?": int, "classes?": [str], "images?": str},
}
META = {
    **{"format": int, "title": str, "weights": str, "in_set": str, "skipped": {str: str}, "files": {str: FILE}},
    **{"name?": str, "recipe?": dict, "classes?": [str], "versions?": {str: str}},
}


@final
@dataclass(frozen=True, slots=True)
class Row:
    index: int
    label: int  # -1 where the set has none
    prediction: int
    score: float
    adversarial: float  # NaN: not attacked
    certified: float  # +inf: no guarantee
    attack: str

    def text(self) -> str:
        adversarial = "" if math.isnan(self.adversarial) else repr(self.adversarial)
        numbers = f"{self.index},{self.label},{self.prediction},{self.score!r},{adversarial},{self.certified!r}"
        return f"{numbers},{self.attack}\n"


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """The rows of a file, column by column."""

    index: NDArray[np.int64]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    score: NDArray[np.float64]
    adversarial: NDArray[np.float64]
    certified: NDArray[np.float64]
    attack: tuple[str, ...]


@final
@dataclass(frozen=True)
class ScoreFile:
    """One CSV that grows batch by batch."""

    path: Path

    @property
    def points(self) -> Path:
        return self.path.with_suffix(".npy")

    def rows(self) -> int:
        """Whole rows that are there; a last line that a kill cut short is none."""
        try:
            with self.path.open("rb") as file:
                return max(0, sum(line.endswith(b"\n") for line in file) - 1)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise ScoreError(f"cannot read {self.path}: {error.strerror}") from None

    def agreeing(self, indices: Iterable[int]) -> int:
        """Rows at the beginning that are of these images, in this order: what is left of a file that was damaged."""
        with self.path.open("rb") as file:
            if file.readline() != HEADER.encode():
                return 0
            pairs = zip(file, indices, strict=False)
            return sum(1 for _ in takewhile(lambda pair: pair[0].startswith(b"%d," % pair[1]), pairs))

    def holds_points(self, rows: int, form: tuple[int, ...]) -> bool:
        """Whether the points of the first rows are there, in an array of this form."""
        try:
            with self.points.open("rb") as file:
                np.lib.format.read_magic(file)
                header = np.lib.format.read_array_header_1_0(file)
                size = os.fstat(file.fileno()).st_size - file.tell()
        except Exception:  # a header is Python's notation: numpy, ast and tokenize may fail on it
            return False
        return header == (form, False, np.dtype("<f4")) and size >= rows * 4 * math.prod(form[1:])

    def keep(self, rows: int) -> None:
        """Cut the file to its first `rows` rows, or begin it."""
        lines = [HEADER.encode()]
        with _telling(self.path):
            if rows:
                with self.path.open("rb") as file:
                    lines = list(islice(file, rows + 1))
            else:
                self.points.unlink(missing_ok=True)
                self.path.parent.mkdir(parents=True, exist_ok=True)
        write(self.path, lambda beside: beside.write_bytes(b"".join(lines)))

    def append(self, rows: Iterable[Row]) -> None:
        with _telling(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write("".join(row.text() for row in rows))
            file.flush()
            os.fsync(file.fileno())

    def append_points(self, points: NDArray[np.float32], at: int, total: int) -> None:
        """Put the points of rows `at` and following behind those before: no memory map, which a full disk kills."""
        with _telling(self.points), self.points.open("r+b" if at else "wb") as file:
            if at:
                np.lib.format.read_magic(file)
                np.lib.format.read_array_header_1_0(file)
                file.seek(at * points[0].nbytes, os.SEEK_CUR)
                file.truncate()
            else:
                form = {"descr": "<f4", "fortran_order": False, "shape": (total, *points.shape[1:])}
                np.lib.format.write_array_header_1_0(file, form)
            file.write(np.ascontiguousarray(points, "<f4").tobytes())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Columns:
        try:
            with self.path.open(encoding="utf-8", newline="") as file:
                reader = csv.reader(file)
                if tuple(next(reader, ())) != COLUMNS:
                    raise ScoreError(f"{self.path} is no score file: its columns are not {', '.join(COLUMNS)}")
                columns = list(zip(*reader, strict=True)) or [()] * len(COLUMNS)
            return _parsed(columns)
        except OSError as error:
            raise ScoreError(f"cannot read {self.path}: {error.strerror}") from None
        except (ValueError, OverflowError, csv.Error) as error:
            raise ScoreError(f"{self.path} is corrupt ({error}); delete it and evaluate again") from None


def _parsed(columns: list[tuple[str, ...]]) -> Columns:
    index, label, prediction, score, adversarial, certified, attack = columns
    parsed = Columns(
        np.array(index, np.int64),
        np.array(label, np.int64),
        np.array(prediction, np.int64),
        np.array(score, np.float64),
        np.array([value or "nan" for value in adversarial], np.float64),
        np.array(certified, np.float64),
        tuple(attack),
    )
    if np.isnan(parsed.score).any() or np.isnan(parsed.certified).any():
        raise ValueError("a score or a bound is NaN")
    found = np.where(np.isnan(parsed.adversarial), parsed.score, parsed.adversarial)
    if not ((parsed.score <= found) & (found <= parsed.certified)).all():
        raise ValueError("score <= adversarial <= certified does not hold for a row")
    if len(np.unique(parsed.index)) < len(parsed.index):
        raise ValueError("an image is there twice")
    return parsed


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ScoreError(f"cannot write {path}: {reason(error)}; then the same command goes on") from None


@final
@dataclass(frozen=True)
class Scores:
    """The folder of one evaluated run."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def file(self, eps: float, image_set: str) -> ScoreFile:
        return ScoreFile(self.folder / f"{eps:g}" / f"{image_set}.csv")

    def meta(self) -> dict[str, Any]:
        """What was run; empty before anything was."""
        path = self.folder / "meta.json"
        try:
            meta: dict[str, Any] = read_json(path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ScoreError(f"cannot read {path}: {error}") from None
        try:
            _check(meta)
        except ValueError as error:
            raise ScoreError(
                f"{path} is not of this version of certood ({error}); evaluate into another folder"
            ) from None
        return meta

    def current(self) -> dict[tuple[float, str], dict[str, Any]]:
        """(eps, set) -> what is known of a file that belongs to the weights of this run and to the scores of the
        in-distribution that are there; others are left over."""
        meta = self.meta()
        found = {
            (known["settings"]["eps"], key.partition("/")[2]): known
            for key, known in meta.get("files", {}).items()
            if known["settings"]["weights"] == meta["weights"]
        }
        inside = found.get((0.0, meta.get("in_set", "")), {"settings": {"data": None}})["settings"]["data"]
        return {key: known for key, known in found.items() if known["settings"]["in-distribution data"] == inside}

    def write_meta(self, meta: dict[str, Any]) -> None:
        with _telling(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "meta.json", json.dumps(meta, indent=2) + "\n")


def _check(meta: Any) -> None:
    """No name in it may lead out of the folder of scores."""
    check(meta, META)
    if meta["format"] != FORMAT:
        raise ValueError(f"it is of format {meta['format']}, not {FORMAT}")
    for key, known in meta["files"].items():
        eps, _, image_set = key.partition("/")
        if eps != f"{known['settings']['eps']:g}" or not stays_inside(image_set):
            raise ValueError(f"it names a file {key!r}")
        if not stays_inside(known.get("images", "none")):
            raise ValueError(f"it names images {known['images']!r}")


def evaluated(folder: Path) -> list[Scores]:
    """All runs whose scores are in a folder, by name."""
    try:
        if not folder.is_dir():
            raise ScoreError(f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}")
        found = [Scores(path) for path in sorted(folder.iterdir()) if (path / "meta.json").is_file()]
        alone = (folder / "meta.json").is_file()
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise ScoreError(f"cannot read {error.filename or folder}: {reason(error)}") from None
    if not found and alone:
        raise ScoreError(f"{folder} is of one run; name the folder that it lies in, {folder.resolve().parent}")
    if not found:
        raise ScoreError(f"{folder} holds no scores; certood evaluate RUN --out {folder} writes some")
    return found
