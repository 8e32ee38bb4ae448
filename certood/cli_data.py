"""`certood data list | info | prepare | overlap`: which image sets there are, a copy as parquet, and what two share."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from certood.arguments import Folder, data_folder, parse
from certood.data.adapting import labels_of
from certood.data.catalogue import catalogue, leave_out_overlap, prepare, whereabouts
from certood.data.entries import Entry, find, known
from certood.data.sources import SPLITS, open_source, title, whereabouts_of
from certood.errors import CertoodError

HELP = """Image sets: for training, and to be told from what was trained on.

  certood data list                every named set, and whether it is here
  certood data info NAME           where it comes from, size, splits, licence
  certood data prepare NAME DIR    write DIR/NAME/SPLIT.parquet
  certood data overlap OUT IN...   leave images of IN out of OUT for training

Wherever a name is asked for, a path does as well: a folder of images (one
folder a class), or a parquet, npz, tar or idx file. --data DIR, or the variable
CERTOOD_DATA, is a folder with NAME/SPLIT.parquet, or NAME/ in any of these
forms; what is not there comes from the Hugging Face hub."""


@dataclass(frozen=True)
class List:
    """Every set that has a name, and whether it is here.

    Example: certood data list --data images
    """

    data: Folder = None
    """folder with image sets; also CERTOOD_DATA"""
    json: bool = False
    """for programs"""


@dataclass(frozen=True)
class Info(List):
    """Where a set comes from, its size, splits and licence.

    Example: certood data info svhn
    """

    name: tyro.conf.Positional[str] = tyro.MISSING
    """a name of `certood data list`"""


@dataclass(frozen=True)
class Prepare:
    """Write DIR/NAME/SPLIT.parquet.

    Example: certood data prepare fashion_mnist images --data downloads
    """

    name: tyro.conf.Positional[str]
    """a name of `certood data list`, or a path"""
    directory: tyro.conf.Positional[Path]
    """where to write"""
    data: Folder = None
    """where the source is; also CERTOOD_DATA"""


@dataclass(frozen=True)
class Overlap:
    """Find training images of OUT that show what an image of IN shows, and leave them out from now on.

    Example: certood data overlap tiny_imagenet cifar10 --data images

    Compares perceptual hashes. What was found is noted beside the files of OUT, with what earlier searches found;
    delete that note to have all back.
    """

    out: tyro.conf.Positional[str]
    """an out-distribution to train with: a name of `certood data list`, or a path"""
    insides: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """the sets that it must not hold, all their splits that are here"""
    data: Folder = None
    """folder with image sets; also CERTOOD_DATA"""
    distance: int = 4
    """bits of 64 in which two hashes of the same image may differ, at most 7"""


def data(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("--help", "-h"):
        print(HELP)
        return
    if arguments[0] not in COMMANDS:
        raise CertoodError(f"no command is called data {arguments[0]}; there are {', '.join(COMMANDS)}")
    COMMANDS[arguments[0]](arguments[1:])


def _list(arguments: Sequence[str]) -> None:
    parsed = parse(List, arguments, "data list")
    folder = data_folder(parsed.data)
    rows = [_facts(entry, folder) for entry in catalogue()]
    if parsed.json:
        print(json.dumps(rows, indent=2))
        return
    line = "{:<20}{:>11}{:>9}  {}"
    print(line.format("name", "train", "test", "here"))
    for row in rows:
        sizes = [_number(row["splits"].get(split)) for split in ("train", "test")]
        print(line.format(row["name"], *sizes, _here(row)))
        text = f"{row['about']}. {row['how_to_get_it']} Licence: {row['licence']}."
        print(textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  "))
    print("permuted_pixels:NAME is any of these, the pixels of every image shuffled.")


def _info(arguments: Sequence[str]) -> None:
    parsed = parse(Info, arguments, "data info")
    folder = data_folder(parsed.data)
    entry = find(parsed.name)
    facts = _facts(entry, folder) if entry else _facts_of_path(parsed.name, folder)
    if parsed.json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for key, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{split} {_number(size)}" for split, size in value.items())
        table.add_row(key.replace("_", " "), ", ".join(value) if isinstance(value, list) else str(value))
    Console().print(table)


def _prepare(arguments: Sequence[str]) -> None:
    parsed = parse(Prepare, arguments, "data prepare")
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(split: str, done: int, total: int) -> None:
            task = tasks.setdefault(split, bar.add_task(split, total=total)) if split not in tasks else tasks[split]
            bar.update(task, completed=done)

        written = prepare(parsed.name, parsed.directory, data_folder(parsed.data), show)
    for path in written:
        print(path)


def _overlap(arguments: Sequence[str]) -> None:
    parsed = parse(Overlap, arguments, "data overlap")
    if not parsed.insides:
        raise CertoodError("name the sets to compare with: certood data overlap OUT IN...")
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(parsed.out)
        folder = data_folder(parsed.data)
        path, gone, new, length = leave_out_overlap(
            parsed.out, parsed.insides, folder, parsed.distance,
            lambda _, done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    left_out = f"{gone:,} of {length:,} images of {parsed.out} are left out from now on"
    print(f"{left_out}, {new:,} of them new, noted in {path}")


HERE = {"local": "yes", "hub": "on the hub", "generated": "built in", "missing": "no"}
COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "list": _list,
    "info": _info,
    "prepare": _prepare,
    "overlap": _overlap,
}


def _here(row: dict[str, Any]) -> str:
    missing = [split for split, here in row["here"].items() if not here]
    if row["whereabouts"] == "local" and missing:
        return f"without {' and '.join(missing)}"
    return HERE[row["whereabouts"]]


def _facts(entry: Entry, folder: Path | None) -> dict[str, Any]:
    size = f"{entry.size}x{entry.size}" if entry.size else "any size"
    return {
        "name": entry.name,
        "about": entry.about,
        "splits": entry.sizes,
        "classes": entry.classes,
        "form": f"{'grey' if entry.channels == 1 else 'colour'}, {size}",
        "licence": entry.licence,
        "hub": entry.hub or "",
        "whereabouts": whereabouts(entry, folder),
        "here": {split: whereabouts(entry, folder, split) in ("local", "generated") for split in entry.sizes},
        "how_to_get_it": entry.obtain,
        "class_names": list(entry.class_names),
    }


def _facts_of_path(name: str, folder: Path | None) -> dict[str, Any]:
    """A set that only its files describe."""
    places = {split: whereabouts_of(name, split, folder) for split in SPLITS}
    if not any(places.values()):
        known(name)  # says what is near
    splits = SPLITS if places["train"] != places["test"] else ("train",)
    sources = {split: open_source(name, split, folder) for split in splits if places[split]}
    _, classes, names = labels_of(next(iter(sources.values())), None)
    return {
        "name": title(name),
        "splits": {split: source.length for split, source in sources.items()},
        "classes": classes,
        "whereabouts": "local",
        "class_names": list(names),
    }


def _number(size: int | None) -> str:
    return "-" if size is None else f"{size:,}" if size else "any"
