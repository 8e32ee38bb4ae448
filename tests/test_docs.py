"""Documentation that runs: every Python block of README and docs, and every docstring example."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import certood
from certood.cli import COMMANDS

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for path in DOCUMENTS:
        own = [text for kind, text in BLOCK.findall(path.read_text()) if kind == language]
        if own:
            found.append((path.name, "\n".join(own)))
    return found


@pytest.mark.parametrize(("name", "code"), blocks("python"))
def test_python_blocks_run(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one document run in order, as one program."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize(("name", "code"), blocks("bash"))
def test_commands_exist(name: str, code: str) -> None:
    for line in code.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["certood"]:
            assert words[1] in COMMANDS or words[1].startswith("--"), f"{name}: {line}"
        elif words[:1] == ["make"]:
            assert re.search(rf"^{words[1]}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE), f"{name}: {line}"


@pytest.mark.parametrize("name", [module.name for module in pkgutil.walk_packages(certood.__path__, "certood.")])
def test_docstring_examples(name: str) -> None:
    if not name.endswith("__main__"):
        module = importlib.import_module(name)
        assert doctest.testmod(module).failed == 0


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
