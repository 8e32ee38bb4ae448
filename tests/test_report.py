"""A report is what anyone would work out from the rows; a folder that is not whole is one clear line."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from invented import DIGITS, invent
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from test_cli import failing

from certood.cli import main
from certood.errors import ScoreError
from certood.metrics import confidences, conservative_auc
from certood.paper import published
from certood.report.curves import interval, trade_off
from certood.report.evaluated import Evaluated, by_in_set, read
from certood.report.findings import findings
from certood.report.page import report
from certood.report.parts import Number, Table
from certood.report.roc import staircase
from certood.report.samples import chosen
from certood.report.split import split
from certood.report.tables import further, tables
from certood.report.teaser import teaser
from certood.report.worst import worst
from certood.report.writing import as_csv, as_html, as_latex, as_markdown, beside

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return invent(tmp_path_factory.mktemp("scores") / "scores")


@pytest.fixture(scope="module")
def everyone(invented: Path) -> list[Evaluated]:
    return read(invented)


@pytest.fixture(scope="module")
def written(invented: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    report(invented, out)
    return out


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_runs_stand_in_the_papers_order(everyone: list[Evaluated]) -> None:
    assert [run.name for run in everyone] == ["plain", "oe", "good80", "good100"]


def test_the_main_table_holds_what_the_rows_say(invented: Path, everyone: list[Evaluated]) -> None:
    main_table = tables(everyone)[0]
    assert main_table.groups == ("EMNIST Letters", "Uniform Noise")
    for label, numbers in main_table.rows:
        folder = invented / label.split(" ")[0]
        inside = _columns(folder / "0" / "mnist.csv")
        assert numbers[0].ours == pytest.approx(100 * np.mean(inside["label"] == inside["prediction"]))
        for group, out_set in enumerate(("emnist_letters", "uniform_noise")):
            rows = _columns(folder / "0.3" / f"{out_set}.csv")
            for head, name in enumerate(("score", "adversarial", "certified")):
                outs = rows[name][~np.isnan(rows[name])]
                wins = (inside["score"][:, None] > outs).mean()  # the definition; ties count as losses
                assert numbers[1 + 3 * group + head].ours == pytest.approx(100 * wins)


@pytest.mark.parametrize(
    ("name", "label"),
    [("good80", "good80"), ("mnist-good_80", "mnist-good_80"), ("good800", "good800 (GOOD_80)"), ("a", "a (GOOD_80)")],
)
def test_a_label_tells_the_method_once(name: str, label: str, tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("good80",), rows=8, attacked=4)
    (scores / "good80").rename(scores / name)
    assert tables(read(scores))[0].rows[0][0] == label


def test_the_papers_numbers_stand_beside_ours(everyone: list[Evaluated]) -> None:
    rows = dict(tables(everyone)[0].rows)
    theirs = published("GOOD_80", "mnist", 0.3, "emnist_letters")
    assert theirs is not None
    assert [number.paper for number in rows["good80"][:4]] == [*theirs]


def test_the_best_of_a_column_is_marked_and_no_column_of_equals(everyone: list[Evaluated]) -> None:
    for table in (*tables(everyone), *further(everyone)):
        for column in zip(*(numbers for _, numbers in table.rows), strict=True):
            shown = [f"{number.ours:.1f}" for number in column if number.ours is not None]
            marked = {f"{number.ours:.1f}" for number in column if number.best}
            if len(set(shown)) == 1:
                assert not marked
            elif marked:
                assert marked in ({max(shown, key=float)}, {min(shown, key=float)})


def test_other_radii_and_lonely_in_sets_have_tables(tmp_path: Path) -> None:
    invent(tmp_path / "radii", ("oe", "good100"), radii=(0.3, 0.4), rows=30, attacked=10)
    titles = [table.title for table in tables(read(tmp_path / "radii"))]
    assert [title.split(":")[0] for title in titles] == ["Main results", "Larger radius", "Mean confidence"]
    invent(tmp_path / "alone", ("oe",), out_sets=(), rows=30, attacked=10)
    (only,) = tables(read(tmp_path / "alone"))
    assert only.first == ("Run", "Accuracy")
    assert not only.groups
    for text in (as_markdown(only), as_csv(only), as_latex(only), as_html(only)):
        assert "100" in text
    report(tmp_path / "alone", tmp_path / "report")  # no pictures, still a page
    assert "no out-set was evaluated" in (tmp_path / "report" / "index.html").read_text()


ODD = Table(
    "odd", "A & B_1", "50 % of #1 | {x} <b>", ("Run", "Accuracy"), ("C~D", "E"), ("AUC",),
    (
        ("r_1 & co", (Number(99.04, 99.0, True), Number(None), Number(12.34, 15.0))),
        ("two", (Number(1.0), Number(50.0), Number(None, 3.0))),
    ),
)  # fmt: skip


def test_a_table_in_markdown() -> None:
    lines = as_markdown(ODD).splitlines()
    assert lines[0] == r"### A & B\_1"
    grid = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    assert grid[0] == ["Run", "Accuracy", "C~D: AUC", "E: AUC"]
    assert grid[2] == [r"r\_1 & co", "**99.0**", "–", "12.3"]
    assert grid[3] == ["*paper*", "99.0 (+0.0)", "", "15.0 (-2.7)"]
    assert grid[5] == ["*paper*", "", "", "3.0"]
    assert len({len(line) for line in lines if line.startswith("| ")}) == 1  # straight columns


def test_a_table_in_csv_has_all_digits() -> None:
    rows = list(csv.DictReader(as_csv(ODD).splitlines()))
    assert [*rows[0]] == [
        "Run", "Accuracy", "Accuracy paper", "Accuracy difference",
        "C~D AUC", "E AUC", "E AUC paper", "E AUC difference",
    ]  # fmt: skip
    assert rows[0]["Run"] == "r_1 & co"
    assert float(rows[0]["Accuracy difference"]) == 99.04 - 99.0
    assert rows[0]["C~D AUC"] == ""


def test_a_table_in_latex_is_escaped_and_balanced() -> None:
    text = as_latex(ODD)
    assert r"r\_1 \& co & \textbf{99.0} & -- & 12.3 \\" in text
    assert r"50 \% of \#1 | \{x\} <b>" in text
    assert r"\multicolumn{1}{c}{C\textasciitilde{}D}" in text
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")].replace(r"\&", "")
    assert {line.count("&") for line in body.splitlines() if line.endswith(r"\\")} == {3}
    paper = text.splitlines()[text.splitlines().index(r"r\_1 \& co & \textbf{99.0} & -- & 12.3 \\") + 1 :][:2]
    assert paper == [
        r"\quad\scriptsize paper & \scriptsize 99.0 &  & \scriptsize 15.0 \\",
        r" & \scriptsize (+0.0) &  & \scriptsize ($-$2.7) \\",
    ]


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no pdflatex")
def test_latex_compiles(written: Path, tmp_path: Path) -> None:
    parts = "\n".join(path.read_text() for path in sorted((written / "tables").glob("*.tex")))
    wrapped = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{parts}\\end{{document}}"
    (tmp_path / "all.tex").write_text(wrapped)
    subprocess.run(["pdflatex", "-halt-on-error", "all.tex"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no pdflatex")
def test_the_main_table_fits_on_a_page(tmp_path: Path) -> None:
    """Four out-sets with the paper's numbers: A4 with margins of 2.5 cm."""
    sets = ("fashion_mnist", "emnist_letters", "cifar10", "uniform_noise")
    invent(tmp_path / "scores", ("plain", "good80"), sets, rows=20, attacked=5)
    (tmp_path / "main.tex").write_text(
        "\\documentclass[10pt]{article}\\usepackage[a4paper,margin=2.5cm]{geometry}\\usepackage{booktabs}\\begin{document}"
        f"{as_latex(tables(read(tmp_path / 'scores'))[0])}\\end{{document}}"
    )
    said = subprocess.run(["pdflatex", "-halt-on-error", "main.tex"], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    assert b"Overfull" not in said.stdout


def test_a_table_in_html_is_well_formed_and_escaped() -> None:
    root = ElementTree.fromstring(as_html(ODD))
    body = root.findall("tbody/tr")
    assert [len(row) for row in body] == [4, 4]
    assert body[0][0].text == "r_1 & co"
    assert [cell.get("data-sort") for cell in body[0][1:]] == ["99.04", "", "12.34"]


@pytest.mark.parametrize(
    ("ours", "paper", "shown"),
    [
        (99.04, 99.0, "99.0 (+0.0)"),
        (98.96, 99.0, "99.0 (+0.0)"),
        (12.34, 15.0, "15.0 (-2.7)"),
        (None, 3.0, "3.0"),
        (1, None, ""),
    ],
)
def test_differences_are_those_of_the_numbers_shown(ours: float | None, paper: float | None, shown: str) -> None:
    assert beside(Number(ours, paper)) == shown


# ---- pictures --------------------------------------------------------------------------------------------------------


def test_the_area_below_a_roc_curve_is_the_conservative_auc() -> None:
    draw = np.random.default_rng(0)
    for size in (3, 40, 119):
        inside, outside = np.sort(draw.normal(1, 1, size).round(1)), np.sort(draw.normal(0, 1, size).round(1))
        accepted, kept = staircase(inside, outside)
        area = float((np.diff(accepted) * kept[:-1]).sum())  # steps
        assert area == pytest.approx(conservative_auc(inside, outside))
    inside, outside = np.sort(draw.normal(1, 1, 5000)), np.sort(draw.normal(0, 1, 5000))
    accepted, kept = staircase(inside, outside)
    area, exact = float((np.diff(accepted) * kept[:-1]).sum()), conservative_auc(inside, outside)
    assert exact - 0.02 < area <= exact


def test_intervals_hold_the_value_and_shrink() -> None:
    draw = np.random.default_rng(0)
    widths = []
    for size in (50, 500, 5000):
        inside, outside = draw.normal(1, 1, size), draw.normal(0, 1, size)
        found = interval(inside, outside, conservative_auc(inside, outside))
        assert 0 <= found.low <= found.value <= found.high <= 1
        widths.append(found.high - found.low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_the_worst_come_first(everyone: list[Evaluated]) -> None:
    pictures = worst(everyone, 0.3)
    assert [picture.name for picture in pictures] == ["worst-emnist_letters", "worst-uniform_noise"]
    best = next(run for run in everyone if run.name in pictures[0].title)
    top = np.sort(best.outside[0.3, "emnist_letters"].adversarial[:40])[::-1][:10]
    words = [text.get_text() for text in pictures[0].figure.axes[0].texts]
    for share in confidences(top):
        assert f"{100 * share:.1f} %" in words


def test_samples_show_each_class_once(everyone: list[Evaluated]) -> None:
    rows = chosen(everyone, 0.3, "emnist_letters", 40)
    assert sorted(everyone[0].outside[0.3, "emnist_letters"].label[rows]) == list(range(26))


def test_the_teaser_tells_the_bound_rounded_up(everyone: list[Evaluated]) -> None:
    (picture,) = teaser(everyone, 0.3)
    promised = float(re.findall(r"no neighbour has a confidence above ([\d.]+) %", picture.caption)[0])
    bounds = np.concatenate(
        [confidences(run.outside[0.3, name].certified) for run in everyone[2:] for _, name in run.cells]
    )
    assert (np.abs(promised / 100 - 0.0005 - bounds) <= 0.00051).any()


def test_all_words_stand_on_the_sheet(tmp_path: Path) -> None:
    """Also those of a run with a long name."""
    scores = invent(tmp_path / "scores", ("oe", "good100"), rows=20, attacked=5)
    (scores / "good100").rename(scores / "mnist-good100-seed-1")
    runs = read(scores)
    for picture in (*teaser(runs, 0.3), *worst(runs, 0.3)):
        canvas = FigureCanvasAgg(picture.figure)
        canvas.draw()
        for words in picture.figure.axes[0].texts:
            box = words.get_window_extent(canvas.get_renderer())
            assert 0 <= box.x0 <= box.x1 <= picture.figure.bbox.width, words.get_text()


def test_the_split_is_that_of_the_loss(everyone: list[Evaluated]) -> None:
    (picture,) = split(everyone, 0.3)
    words = [text.get_text() for text in picture.figure.axes[0].texts]
    assert words[0].startswith("Highest bounds: trained as they are: 8 images")  # a fifth of 40
    assert words[1].startswith("Guaranteed: 32 images")
    assert not split([run for run in everyone if run.name != "good80"], 0.3)


def test_a_curve_over_the_quantile_is_of_one_recipe(everyone: list[Evaluated]) -> None:
    """good100 of another recipe has its own quantile, and is no point of the curve."""
    last = everyone[-1]
    other = replace(last, meta=last.meta | {"recipe": last.recipe | {"name": "mnist-shapes"}})
    assert len(trade_off(everyone, 0.3)) == 1
    assert trade_off([*everyone[:-1], other], 0.3) == []


# ---- the page --------------------------------------------------------------------------------------------------------


def test_everything_is_written_in_all_forms(written: Path) -> None:
    names = {path.stem for path in (written / "tables").iterdir()}
    assert {path.name for path in (written / "tables").iterdir()} == {
        f"{n}.{e}" for n in names for e in ("md", "csv", "tex")
    }
    figures = {path.stem for path in (written / "figures").iterdir()}
    assert figures >= {
        f"mnist-{n}" for n in ("aucs", "roc", "histograms", "teaser", "trade-off", "split", "worst-uniform_noise")
    }
    for name in figures:
        with Image.open(written / "figures" / f"{name}.png") as picture:
            assert picture.size[0] == 1440
        assert ElementTree.parse(written / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
    page = (written / "index.html").read_text()
    assert not re.search(r"(src|href)=.?(https?:)?//", page)
    for name in (*names, *figures):
        assert f'id="{name}"' in page


def test_a_report_is_the_same_every_time(invented: Path, written: Path, tmp_path: Path) -> None:
    report(invented, tmp_path)
    ours, theirs = (
        {p.relative_to(d): p.read_bytes() for d in [d] for p in d.rglob("*.*")} for d in (written, tmp_path)
    )
    assert ours == theirs


def test_golden_report(written: Path) -> None:
    """Words and numbers; pictures are left out, since fonts and libraries change them."""
    page = re.sub(r"data:image/png;base64,[\w+/=]+", "PICTURE", (written / "index.html").read_text())
    for name, text in (
        ("report.html", page),
        ("report_main.md", (written / "tables" / "mnist-main-0_3.md").read_text()),
    ):
        if os.environ.get("CERTOOD_GOLDEN") == "write":
            (GOLDEN / name).write_text(text)
        assert text == (GOLDEN / name).read_text(), "if the change is meant: make golden"


def test_names_that_try_to_be_markup_stay_words(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe",), rows=20, attacked=5)
    (scores / "oe").rename(scores / "<script>alert(1)<")
    report(scores, tmp_path / "report")
    assert "<script>alert" not in (tmp_path / "report" / "index.html").read_text()


def test_names_with_spaces_are_ids_without(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe", "good100"), ("my set & yours",), rows=20, attacked=5)
    page = report(scores, tmp_path / "report").read_text()
    ids = set(re.findall(r'id="([^"]*)"', page))
    assert not [each for each in ids if re.search(r"[\s&]", each)]
    assert set(re.findall(r'href="#([^"]*)"', page)) | set(re.findall(r'labelledby="([^"]*)"', page)) <= ids


def test_findings_are_of_one_radius(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe", "good100"), radii=(0.1, 0.3, 0.4), rows=20, attacked=5)
    lines = findings(read(scores))
    assert len(lines) == 2
    assert all("eps 0.3" in line for line in lines)
    lonely = invent(tmp_path / "lonely", ("oe",), (), rows=20)
    assert findings(read(lonely)) == []


def test_parts_for_each_in_distribution(tmp_path: Path) -> None:
    invent(tmp_path, ("oe",), rows=20, attacked=5)
    invent(tmp_path, ("good100",), rows=20, attacked=5, in_set="svhn")
    assert [*by_in_set(read(tmp_path))] == ["mnist", "svhn"]


def test_no_torch_is_needed(invented: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from certood.cli import main; "
        f"main(['report', {str(invented)!r}, '--out', {str(tmp_path)!r}]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()


# ---- what is not whole -----------------------------------------------------------------------------------------------


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _cut(folder: Path) -> None:
    path = folder / "good100" / "0.3" / "uniform_noise.csv"
    path.write_text(path.read_text()[:-30])


def _foreign_meta(folder: Path) -> None:
    (folder / "good100" / "meta.json").write_text('{"format": 1, "name": "somebody else"}')


def _foreign_rows(folder: Path) -> None:
    (folder / "good100" / "0.3" / "uniform_noise.csv").write_text("a,b\n1,2\n")


def _lost_rows(folder: Path) -> None:
    (folder / "good100" / "0" / "mnist.csv").unlink()


def _lost_images(folder: Path) -> None:
    (folder / "images" / "uniform_noise.npy").unlink()


def _corrupt_points(folder: Path) -> None:
    (folder / "good100" / "0.3" / "uniform_noise.npy").write_bytes(b"\x93NUMPY")


def _few_points(folder: Path) -> None:
    np.save(folder / "good100" / "0.3" / "uniform_noise.npy", np.zeros((2, 1, 8, 8), np.float32))


def _other_points(folder: Path) -> None:
    np.save(folder / "good100" / "0.3" / "uniform_noise.npy", np.zeros((5, 3, 8, 8), np.float32))


def _no_pixels(folder: Path) -> None:
    np.save(folder / "images" / "uniform_noise.npy", np.zeros((5, 1, 0, 0), np.uint8))


def _outside(folder: Path) -> None:
    _changed(folder, lambda meta: meta["files"]["0.3/uniform_noise"].update(images="../../secret.npy"))


def _no_recipe(folder: Path) -> None:
    _changed(folder, lambda meta: meta.pop("recipe"))


def _fewer_classes(folder: Path) -> None:
    _changed(folder, lambda meta: meta.update(classes=DIGITS[:3]))


def _unknown_label(folder: Path) -> None:
    path = folder / "good100" / "0.3" / "emnist_letters.csv"
    path.write_text(path.read_text().replace("\n3,3,", "\n3,26,"))


def _strange_quantile(folder: Path) -> None:
    _changed(folder, lambda meta: meta["recipe"].update(quantile="most"))


def _strange_start(folder: Path) -> None:
    _changed(folder, lambda meta: meta["files"]["0.3/uniform_noise"]["settings"].update({"transfer from": 3}))


def _changed(folder: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    path = folder / "good100" / "meta.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_empty, "holds no scores"), (_cut, "uniform_noise.csv"), (_foreign_meta, "meta.json"),
        (_foreign_rows, "uniform_noise.csv"), (_lost_rows, "mnist.csv"), (_lost_images, "uniform_noise.npy"),
        (_corrupt_points, "uniform_noise.npy"), (_few_points, "uniform_noise.npy"),
        (_other_points, "holds points of shape (3, 8, 8)"), (_no_pixels, "holds no images"),
        (_outside, "it names images"), (_no_recipe, "its recipe is missing"),
        (_fewer_classes, "predicts unknown classes"), (_unknown_label, "labels of unknown classes"),
        (_strange_quantile, "no method, eps or quantile"), (_strange_start, "where its attack began"),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_whole_is_one_line(
    harm: Callable[[Path], None], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = invent(tmp_path / "scores", ("oe", "good100"), rows=20, attacked=5)
    harm(scores)
    assert told in failing(["report", str(scores), "--out", str(tmp_path / "report")], capsys)
    assert not (tmp_path / "report" / "index.html").exists()


def test_scores_of_other_weights_are_left_out(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe", "good100"), rows=20, attacked=5)
    _changed(scores, lambda meta: meta["files"]["0.3/emnist_letters"]["settings"].update(weights="e" * 64))
    report(scores, tmp_path / "report")
    (oe, good) = (tmp_path / "report" / "tables" / "mnist-main-0_3.csv").read_text().splitlines()[1:]
    assert oe.count(",,,") < good.count(",,,")


def test_a_folder_that_cannot_be_written_is_one_line(
    invented: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot make" in failing(["report", str(invented), "--out", str(tmp_path / "file")], capsys)
    assert "there is no folder" in failing(["report", str(tmp_path / "none")], capsys)
    assert "is no folder" in failing(["report", str(tmp_path / "file")], capsys)
    assert "File name too long" in failing(["report", "x" * 300], capsys)
    assert f"the folder that it lies in, {invented}" in failing(["report", str(invented / "oe")], capsys)


def test_an_image_without_a_class_gets_no_name(tmp_path: Path) -> None:
    """And is no sample of a class: -1 is not the last one."""
    scores = invent(tmp_path / "scores", ("good100",), rows=20, attacked=10)
    path = scores / "good100" / "0.3" / "emnist_letters.csv"
    path.write_text(re.sub(r"(?m)^([0-9]),\d+,", r"\1,-1,", path.read_text()))
    (run,) = read(scores)
    assert chosen([run], 0.3, "emnist_letters", 10).size == 0
    assert all(
        words.get_text() in {f"as {digit}" for digit in DIGITS}
        for words in worst([run], 0.3)[0].figure.axes[0].texts
        if " as " in f" {words.get_text()}"
    )


def test_runs_that_know_other_classes_of_a_set_are_not_compared(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe", "good100"), rows=20, attacked=5)
    _changed(scores, lambda meta: meta["files"]["0.3/emnist_letters"].update(classes=[]))
    assert report(scores, tmp_path / "report").is_file()


def test_a_set_without_any_guarantee_is_named(tmp_path: Path) -> None:
    scores = invent(tmp_path / "scores", ("oe", "good100"), rows=20, attacked=5)
    path = scores / "good100" / "0.3" / "emnist_letters.csv"
    path.write_text(re.sub(r"(?m)[^,]+,$", "inf,", path.read_text()))
    lines = findings(read(scores))
    assert lines[-1] == "No run guarantees anything on EMNIST Letters, eps 0.3."
    assert "Uniform Noise" in lines[0]


def test_meta_of_any_kind_is_a_page_or_one_error(tmp_path: Path) -> None:
    """Every value of every key swapped for one of another kind."""
    scores = invent(tmp_path / "scores", ("good100",), rows=8, attacked=4)
    path = scores / "good100" / "meta.json"
    whole = json.loads(path.read_text())
    for key in whole:
        for value in (None, 3, "x", [1], {"a": 1}):
            path.write_text(json.dumps({**whole, key: value}))
            with suppress(ScoreError):
                report(scores, tmp_path / "report")


# ---- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    """In 20 s and 1 GB on a quiet machine; here with room for a busy one."""
    sets = ("emnist_letters", "uniform_noise", "fashion_mnist", "cifar10")
    invent(tmp_path / "scores", out_sets=sets, rows=50_000, attacked=1_000)
    arguments = ["report", str(tmp_path / "scores"), "--out", str(tmp_path / "report")]
    code = f"""
import resource, re, pathlib
from certood.cli import main
main({arguments!r})
largest = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime, largest)
"""  # its own largest: ru_maxrss would be that of this process as well, from before the child began
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, kilobytes = done.stdout.split()[-2:]
    assert float(seconds) < 30
    assert int(kilobytes) < 1024 * 1024


def test_the_command_says_where_to_look(invented: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(invented), "--out", str(tmp_path / "report")])
    assert str(tmp_path / "report" / "index.html") in capsys.readouterr().out


def _columns(path: Path) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    names = ("label", "prediction", "score", "adversarial", "certified")
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}
