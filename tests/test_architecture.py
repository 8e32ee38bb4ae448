"""The shape of the house: the public names, the direction of imports, the size of rooms, what is slow to import."""

import ast
import subprocess
import sys
from pathlib import Path

import certood

PACKAGE = Path(certood.__file__).parent

# Data flows down this list: a module imports only from modules above it.
HOUSE = """
errors ranks contents files locks verify
metrics.columns metrics.ranking metrics.intervals metrics.answers metrics.forms metrics paper scores summary averages
boxes bounds.affine bounds.interval bounds.arithmetic bounds.convolving bounds.rounding bounds.ulps bounds.precision
bounds.confidence bounds
normalisation residual networks discriminators mixtures detectors
attacks.hunt attacks.gradient attacks.sparse attacks.blind attacks.starts attacks.budgets attacks
methods schedules settings recipes systems building
data.entries data.order data.views data.leaving_out data.matlab data.formats data.classes data.noise data.demo
data.places data.overlap data.adapting data.encoded data.shards data.archives data.sources data.catalogue data.stream
data.augment
data.shapes
data
runs certificates assembly card images calibration guard adapters team evaluation filing contest
pictures machine objective tally progress interrupts journal reading training several
report.parts report.evaluated report.choices report.drawing report.writing report.columns report.tables
report.roc report.histograms report.curves report.sheets report.samples report.per_class report.teaser
report.split report.worst report.pictures report.findings report.page report
arguments cli_data cli_evaluate cli_report cli_demo cli_verify cli_guard cli_train cli_reproduce cli __main__
"""
ORDER = HOUSE.split()


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = path
    return found


def test_public_names() -> None:
    assert sorted(certood.__all__) == [
        "Box",
        "CertoodError",
        "Guard",
        "UnsupportedOperation",
        "attacks",
        "confidence_upper",
        "load",
        "logit_gaps",
        "max_gap",
        "methods",
        "metrics",
        "networks",
        "recipes",
        "runs",
    ]
    for name in certood.__all__:
        assert getattr(certood, name) is not None


def test_every_module_has_its_place() -> None:
    assert sorted(modules()) == sorted(ORDER)


def test_no_import_points_back() -> None:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            imported: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "certood":
                base = node.module.removeprefix("certood").removeprefix(".")
                imported = [f"{base}.{a.name}".strip(".") for a in node.names]
                imported = [each if each in ORDER else base for each in imported]
            elif isinstance(node, ast.Import):
                imported = [a.name.removeprefix("certood.") for a in node.names if a.name.startswith("certood.")]
            for each in imported:
                if each and ORDER.index(each) >= ORDER.index(name):
                    raise AssertionError(f"{name} imports {each}, which stands below it")


def test_rooms_are_small() -> None:
    for name, path in modules().items():
        assert len(path.read_text().splitlines()) <= 300, f"{name} is two rooms"


def loaded_by(code: str) -> set[str]:
    report = f"import sys; {code}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return {line.split(".")[0] for line in run.stdout.splitlines()}


def test_help_and_the_catalogue_do_not_wait_for_torch() -> None:
    heavy = {"torch", "datasets", "kornia", "lightning_fabric", "matplotlib", "scipy", "sklearn", "pandas"}
    assert not heavy & loaded_by("import certood.cli")
    assert not heavy & loaded_by("import certood.data.catalogue")
