"""What every command shares: dataclass -> arguments through tyro, its boxed errors made one line, the data folder."""

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from certood.errors import CertoodError

Arguments = TypeVar("Arguments")
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]


def parse(kind: type[Arguments], arguments: Sequence[str], command: str, **more: Any) -> Arguments:
    complaint = io.StringIO()
    config = (tyro.conf.FlagCreatePairsOff,)
    try:
        with contextlib.redirect_stderr(complaint):
            parsed: Arguments = tyro.cli(kind, args=list(arguments), prog=f"certood {command}", config=config, **more)
        return parsed
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
    raise CertoodError(f"{_first_sentence(complaint.getvalue())}; see certood {command.split(' RECIPE')[0]} --help")


def _first_sentence(box: str) -> str:
    """The text of a box below its title, up to a rule; where the output is not UTF-8 it is drawn with hyphens."""
    text: list[str] = []
    for line in box.splitlines()[1:]:
        line = line.strip("│╭╮╰╯ ")
        if line.strip("─-"):
            text.append(line)
        elif text:
            break
    return " ".join(text).removeprefix("Error parsing recipe: ").rstrip(".") or box.strip()


def shown(metavar: str, default: str) -> Any:
    """What --help calls an option's value, and its default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=default)


def listed(text: str) -> tuple[str, ...]:
    """A,B,C, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def data_folder(given: Path | None) -> Path | None:
    """--data, else CERTOOD_DATA, else none."""
    variable = os.environ.get("CERTOOD_DATA")
    folder = given or (Path(variable) if variable else None)
    if folder is not None and not folder.is_dir():
        raise CertoodError(f"there is no data folder {folder}")
    return folder
