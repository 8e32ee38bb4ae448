"""Writes the report: one page that needs nothing else, and every table and figure as files of their own."""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import final

import jinja2
import matplotlib
from matplotlib.figure import Figure

import certood
from certood.errors import ScoreError
from certood.files import reason, write_text
from certood.report.choices import called, radius
from certood.report.curves import curves
from certood.report.evaluated import Evaluated, by_in_set, read
from certood.report.findings import facts, findings, promise, threat
from certood.report.parts import Picture, Table
from certood.report.pictures import pictures
from certood.report.tables import further, tables
from certood.report.teaser import teaser
from certood.report.writing import as_csv, as_html, as_latex, as_markdown, explained

Watch = Callable[[str], None]
DOTS_PER_INCH = 144  # twice what a page shows, so that lines are crisp on a phone


@final
@dataclass(frozen=True)
class Block:
    """A table or a picture on the page."""

    anchor: str
    title: str
    caption: str
    html: str = ""  # of a table
    source: str = ""  # of a picture, as a data address
    width: int = 0
    height: int = 0


def report(folder: Path, out: Path, watch: Watch = lambda _: None) -> Path:
    """Report on all runs whose scores are in `folder`; the page that was written."""
    watch(f"reading {folder}")
    parts = [_part(in_set, runs, out, watch) for in_set, runs in by_in_set(read(folder)).items()]
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    title = f"Out-of-distribution detection: {', '.join(str(part['title']) for part in parts)}"
    page = environment.from_string(template).render(title=title, version=certood.__version__, parts=parts)
    write_text(out / "index.html", page)
    return out / "index.html"


def _part(in_set: str, runs: Sequence[Evaluated], out: Path, watch: Watch) -> dict[str, object]:
    """All of one in-distribution, as the template has it."""
    blocks = []
    for each in _contents(runs):
        watch(each.title)
        blocks.append(_table(each, in_set, out) if isinstance(each, Table) else _picture(each, in_set, out))
    return {
        "anchor": _anchor(in_set),
        "title": called(in_set),
        "findings": findings(runs),
        "promise": promise(runs),
        "threat": threat(runs),
        "blocks": blocks,
        "runs": [{"name": run.name, "title": run.title, "facts": facts(run)} for run in runs],
    }


def _contents(runs: Sequence[Evaluated]) -> Iterator[Table | Picture]:
    """From what everybody looks at to what some do."""
    eps = radius(runs)
    yield from teaser(runs, eps)
    yield from tables(runs)
    yield from curves(runs, eps)
    yield from pictures(runs, eps)
    yield from further(runs)


def _table(table: Table, in_set: str, out: Path) -> Block:
    name = f"{in_set}-{table.name}"
    for ending, render in (("md", as_markdown), ("csv", as_csv), ("tex", as_latex)):
        _folder(out / "tables")
        write_text(out / "tables" / f"{name}.{ending}", render(table))
    return Block(_anchor(name), table.title, explained(table), html=as_html(table))


def _picture(picture: Picture, in_set: str, out: Path) -> Block:
    name = f"{in_set}-{picture.name}"
    _folder(out / "figures")
    drawn = _saved(picture.figure, "png")
    width, height = (round(inches * DOTS_PER_INCH / 2) for inches in picture.figure.get_size_inches())
    for ending, content in (("png", drawn), ("svg", _saved(picture.figure, "svg"))):
        path = out / "figures" / f"{name}.{ending}"
        try:
            path.write_bytes(content)
        except OSError as error:
            raise ScoreError(f"cannot write {path}: {reason(error)}") from None
    source = f"data:image/png;base64,{base64.b64encode(drawn).decode()}"
    return Block(_anchor(name), picture.title, picture.caption, source=source, width=width, height=height)


def _anchor(name: str) -> str:
    """A set may be called anything, but an id has no spaces."""
    return "".join(each if each.isalnum() or each in "-_." else f"~{ord(each):x}" for each in name)


def _saved(figure: Figure, form: str) -> bytes:
    """The same bytes every time: no date, no random names."""
    held = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "certood"}):
        figure.savefig(held, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return held.getvalue()


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScoreError(f"cannot make {path}: {reason(error)}") from None
