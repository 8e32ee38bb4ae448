"""`certood report`: one page of tables, figures and pictures from the scores of an evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from certood.arguments import parse


@dataclass(frozen=True)
class Report:
    """certood report DIR: tables, figures and one page from the scores in DIR.

    Example: certood report scores --out report

    Writes index.html, which needs no network, tables/ and figures/.
    """

    scores: tyro.conf.Positional[Path]
    """folder that certood evaluate wrote"""
    out: Path | None = None
    """folder to write to; DIR/report if left out"""


def report(arguments: Sequence[str]) -> None:
    parsed = parse(Report, arguments, "report")
    from certood.report.page import report as write_report

    console = Console(stderr=True)
    with console.status("", spinner="line") as status:
        page = write_report(parsed.scores, parsed.out or parsed.scores / "report", status.update)
    print(f"{page}: open it in a browser; the same tables and figures are beside it as files")
