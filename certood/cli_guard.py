"""`certood calibrate` and `certood certify`: a trained run gets a threshold, and says what it guarantees for images."""

import json
import math
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from certood.arguments import Folder, data_folder, parse, shown
from certood.errors import CertoodError

if TYPE_CHECKING:
    from certood.guard import Guard


@dataclass(frozen=True)
class Calibrate:
    """certood calibrate RUN: set the threshold at which a run accepts an image.

    Example: certood calibrate runs/good --data images

    Takes in-distribution images that training has not seen, and writes calibration.json into the run folder.
    """

    run: Annotated[Path, tyro.conf.Positional, shown("RUN", "(required)")]
    """run folder"""
    accept: float = 0.95
    """share of in-distribution images that is to be accepted"""
    data: Folder = None
    """folder with image sets, NAME/SPLIT.parquet or other forms; also CERTOOD_DATA"""
    in_set: Annotated[str, shown("NAME", "(default: the recipe's)")] = ""
    """in-distribution image set, a name or a path"""
    split: Literal["test", "train"] = "test"
    """which images of it; not those that the run was trained on"""
    limit: int = 0
    """use only so many, always the same choice; 0 for all"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where to compute"""
    json: bool = False
    """print the calibration for programs"""


@dataclass(frozen=True)
class Certify:
    """certood certify RUN IMAGE...: what a run answers to images, and to every image nearby.

    Example: certood certify runs/good a.png b.png --eps 0.1 --radius

    Images are files of the size and colours that the network takes.
    """

    run: Annotated[Path, tyro.conf.Positional, shown("RUN", "(required)")]
    """run folder"""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, shown("IMAGE", "")] = ()
    """image files"""
    eps: Annotated[float | None, shown("EPS", "(default: the recipe's)")] = None
    """how far each pixel may move, in units of the [0, 1] pixel range"""
    radius: bool = False
    """also find the largest eps for which rejection is guaranteed; needs a calibration"""
    certificate: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """write what is guaranteed for the one image to this file, for certood verify"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where to compute"""
    json: bool = False
    """print the answers for programs"""


def calibrate(arguments: Sequence[str]) -> None:
    parsed = parse(Calibrate, arguments, "calibrate")
    if parsed.limit < 0:
        raise CertoodError(f"a limit is 0 (all images) or more, not {parsed.limit}")
    folder = data_folder(parsed.data)
    from certood.data.sources import load
    from certood.guard import uncalibrated

    guard = uncalibrated(parsed.run, parsed.device)
    name = parsed.in_set or _named(guard)
    if parsed.split == "train" and guard.recipe and name == guard.recipe.in_set:
        raise CertoodError(
            f"{parsed.run} was trained on {name}/train: what it scores there says nothing of new images; take "
            "--split test, or images of your own that training has not seen"
        )
    image_set = load(
        name,
        parsed.split,
        folder=folder,
        channels=guard.form.channels,
        size=guard.form.size,
        limit=parsed.limit or None,
    )
    if image_set.class_names and guard.class_names and image_set.class_names != guard.class_names:
        raise CertoodError(f"{name} has other classes than {parsed.run}: {', '.join(image_set.class_names)}")
    calibration = guard.calibrate(image_set.images(np.arange(len(image_set))), parsed.accept)
    if parsed.json:
        shown = {"run": str(parsed.run), "threshold": calibration.threshold, "confidence": calibration.confidence}
        shown |= {"accept": calibration.accept, "at_least": calibration.at_least, "images": calibration.images}
        print(json.dumps(shown | {"statement": calibration.statement}, indent=2))
        return
    print(f"{parsed.run.resolve().name} now accepts a confidence of {_percent(calibration.confidence)} or more:")
    print(textwrap.fill(f"{calibration.statement}.", 80))


def _named(guard: "Guard") -> str:
    """The recipe's set, if it is one that certood knows by name: a path that stands in a file is not followed."""
    from certood.data import entries

    name = guard.recipe.in_set if guard.recipe else ""
    if entries.find(name) is None:
        raise CertoodError(f"the run was trained on {name!r}, which has no known name: give --in-set, a name or a path")
    return name


def certify(arguments: Sequence[str]) -> None:
    parsed = parse(Certify, arguments, "certify")
    if not parsed.images:
        raise CertoodError("name the image files: certood certify RUN IMAGE...")
    if parsed.certificate and len(parsed.images) > 1:
        raise CertoodError(f"a certificate is for one image, not for {len(parsed.images)}")
    from certood.guard import load

    guard = load(parsed.run, parsed.device)
    if parsed.certificate:
        _spare(parsed.certificate, parsed.images[0], parsed.run)
    eps = parsed.eps if parsed.eps is not None else (guard.recipe.eps if guard.recipe else 0.0)
    rows = answers(guard, parsed.images, eps, parsed.radius)
    if parsed.certificate:
        from certood.certificates import write_certificate

        write_certificate(parsed.certificate, guard.certificate(parsed.images[0], eps))
    if parsed.json:
        calibration = guard.calibration
        print(json.dumps({
            "run": str(parsed.run),
            "weights": guard.weights,
            "eps": eps,
            "threshold": calibration and calibration.confidence,
            "threshold_log_odds": calibration and calibration.threshold,
            "calibration": calibration and calibration.statement,
            "certificate": parsed.certificate and str(parsed.certificate),
            "images": rows,
        }, indent=2))  # fmt: skip
        return
    _print(guard, rows, eps, parsed)


def _spare(certificate: Path, image: Path, run: Path) -> None:
    """A certificate takes the place of an older one, but not of what it is about."""
    for kept in (image, *(run / name for name in ("weights.safetensors", "recipe.json", "calibration.json"))):
        if certificate.exists() and kept.exists() and certificate.samefile(kept):
            raise CertoodError(f"--certificate {certificate} would overwrite {kept}: name another file")


def answers(guard: "Guard", images: Sequence[Path], eps: float, radius: bool) -> list[dict[str, Any]]:
    """One for each image; `None` where there is no calibration to tell."""
    predicted, certified = guard.predict(images), guard.certify(images, eps)
    radii = guard.radius(images) if radius else None
    return [
        {
            "image": str(image),
            "label": int(predicted.labels[row]),
            "class": guard.class_names[predicted.labels[row]] if guard.class_names else None,
            "confidence": float(predicted.confidences[row]),
            "confidence_at_least": float(certified.lower[row]),
            "confidence_at_most": float(certified.upper[row]),
            "accepted": _flag(predicted.accepted, row),
            "accepted_for_sure": _flag(certified.accepted, row),
            "rejected_for_sure": _flag(certified.rejected, row),
        }
        | ({} if radii is None else {"radius": float(radii[row])})
        for row, image in enumerate(images)
    ]


def _flag(column: Any, row: int) -> bool | None:
    return None if column is None else bool(column[row])


def _print(guard: "Guard", rows: Sequence[dict[str, Any]], eps: float, parsed: Certify) -> None:
    console = Console(width=None if sys.stdout.isatty() else 80, markup=False, emoji=False, highlight=False)
    calibration, name = guard.calibration, parsed.run.resolve().name
    names = [image.name for image in parsed.images]
    names = names if len(set(names)) == len(names) else [str(image) for image in parsed.images]
    if calibration:
        console.print(f"{name} accepts a confidence of {_percent(calibration.confidence)} or more:")
        console.print(f"{calibration.statement}.\n")
    else:
        console.print(f"{parsed.run} has no threshold yet: certood calibrate {parsed.run} --data DIR sets one\n")
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("\nimage", overflow="fold")
    table.add_column("\nclass", overflow="ellipsis", no_wrap=True)
    table.add_column("\nconfidence", justify="right")
    table.add_column(f"everywhere\nwithin eps {eps:g}", justify="right", no_wrap=True)
    if calibration:
        table.add_column("\nverdict", no_wrap=True)
    if parsed.radius:
        table.add_column("\nradius", justify="right")
    for called, row in zip(names, rows, strict=True):
        spread = f"{_percent(row['confidence_at_least'], up=False)} to {_percent(row['confidence_at_most'], up=True)}"
        cells = [called, row["class"] or str(row["label"]), _percent(row["confidence"]), spread]
        cells += [_verdict(row)] if calibration else []
        table.add_row(*cells, *([_radius(row["radius"])] if parsed.radius else []))
    console.print(table)
    if calibration:
        console.print(f"\nSURELY: and so is, provably, every image whose pixels differ by at most {eps:g}.")
    if parsed.radius:
        console.print("Radius: every image whose pixels differ by at most that is provably rejected.")
    if parsed.certificate:
        console.print(
            f"\n{parsed.certificate} is written. Others check it with\n"
            f"  certood verify {parsed.certificate} --weights {parsed.run} --image {parsed.images[0]}",
            soft_wrap=True,
        )


def _verdict(row: dict[str, Any]) -> str:
    verdict = "accepted" if row["accepted"] else "rejected"
    return f"SURELY {verdict}" if row[f"{verdict}_for_sure"] else verdict


def _radius(radius: float) -> str:
    return f"{math.floor(1e4 * radius) / 1e4:.4f}" if radius else "none"


def _percent(share: float, up: bool | None = None) -> str:
    """To a tenth of a percent; a bound is rounded to where it still holds."""
    tenths = 1000 * share
    whole = round(tenths) if up is None else math.ceil(tenths) if up else math.floor(tenths)
    return f"{whole / 10:.1f} %"
