"""The page in a real browser: nothing from the network, no complaint, tables that sort, keys, contrast, print.

Skips without Chromium (Debian: apt-get install chromium). The accessibility check is axe-core's and wants
`npm install --no-save axe-core` in the repository.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import AXE, CHROMIUM, SIZES, Page, browser
from invented import invent

from certood.report.page import report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scores = invent(tmp_path_factory.mktemp("scores"))
    return report(scores, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(params=SIZES)
def opened(request: pytest.FixtureRequest, tab: Page, written: Path) -> Page:
    tab.prefer("light")
    tab.open(written, *SIZES[request.param])
    return tab


def test_the_browser_tells_what_a_page_asks_for_and_complains_of(tab: Page, tmp_path: Path) -> None:
    """Else the next test could not fail."""
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://localhost:9/x.png"><script>missing()</script>')
    tab.open(bad)
    assert "http://localhost:9/x.png" in tab.requests()
    assert any("missing" in each for each in tab.complaints())


def test_nothing_is_requested_and_nothing_complained_of(opened: Page, written: Path) -> None:
    assert opened.requests() == [written.resolve().as_uri()]
    assert opened.complaints() == []


def test_all_images_load(opened: Page, written: Path) -> None:
    loaded = opened.run("[...document.images].map(image => image.complete && image.naturalWidth > 0)")
    assert len(loaded) == len([*(written.parent / "figures").glob("*.png")])
    assert all(loaded)


def test_only_figures_and_tables_are_wider_than_the_screen(opened: Page) -> None:
    assert opened.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_tables_sort_by_the_column_that_is_pressed(opened: Page) -> None:
    heads, columns = opened.run("document.querySelector('table').querySelectorAll('button').length"), set()
    rows = "[...document.querySelector('table').tBodies[0].rows]"
    for at in range(heads):
        shown = f"{rows}.map(row => [...row.cells].map(cell => cell.dataset.sort))"
        for direction in ("descending", "ascending"):
            opened.run(f"document.querySelector('table').querySelectorAll('button')[{at}].click()")
            (sorted_by,) = opened.run("[...document.querySelectorAll('th[aria-sort]')].map(head => head.ariaSort)")
            assert sorted_by == direction
            column = [row[at] for row in opened.run(shown)]
            if at:
                values = [float(each) for each in column]
                assert values == sorted(values, reverse=direction == "descending")
                columns.add(tuple(values))
    names = opened.run(f"{rows}.map(row => row.cells[0].innerText)")
    assert sorted(names) == ["good100", "good80", "oe", "plain"]  # no row was lost
    assert len(columns) > heads  # and columns differ


def test_keys_reach_and_press_everything(opened: Page) -> None:
    """Tab comes to every link, figure and head of a column, shows where it is, and Enter sorts."""
    everything = opened.run(
        "[...document.querySelectorAll('a, summary, button, [tabindex=\"0\"]')].filter(e => e.checkVisibility()).length"
    )
    sorts = 0
    for reached in range(everything):
        opened.press("Tab")
        kind, outlined = opened.run(
            "[document.activeElement.localName, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert kind != "body", f"{reached} of {everything} were reached"
        assert outlined != "none"
        if kind == "button" and not sorts:
            opened.press("Enter")
            sorts = opened.run("document.querySelectorAll('th[aria-sort]').length")
    assert sorts == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ground_follows_the_scheme(scheme: str, tab: Page, written: Path) -> None:
    tab.prefer(scheme)
    tab.open(written)
    channels = re.findall(r"\d+", tab.run("getComputedStyle(document.body).backgroundColor"))
    assert (sum(map(int, channels)) > 600) is (scheme == "light")


@pytest.mark.skipif(not AXE.is_file(), reason="there is no axe-core: npm install --no-save axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(size: str, scheme: str, tab: Page, written: Path) -> None:
    tab.prefer(scheme)
    tab.open(written, *SIZES[size])
    tab.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    tab.run(AXE.read_text())
    found = tab.run(
        "axe.run().then(done => ({broken: done.violations.map(each => each.id + ' ' + each.nodes[0].html),"
        " passed: done.passes.map(each => each.id)}))"
    )
    assert found["broken"] == []
    assert {"color-contrast", "image-alt", "heading-order"} <= {*found["passed"]}


def test_axe_can_find_something(tab: Page, tmp_path: Path) -> None:
    if not AXE.is_file():
        pytest.skip("there is no axe-core: npm install --no-save axe-core")
    bad = tmp_path / "bad.html"
    bad.write_text('<html lang="en"><title>x</title><p style="color: #bbb; background: #fff">pale</p></html>')
    tab.open(bad)
    tab.run(AXE.read_text())
    assert "color-contrast" in tab.run("axe.run().then(done => done.violations.map(each => each.id))")


def test_print_leaves_out_what_is_for_the_screen_and_opens_what_is_closed(tab: Page, written: Path) -> None:
    tab.prefer("light")
    tab.open(written)
    tab.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert tab.run("document.querySelector('main details dl').checkVisibility()")
    finally:
        tab.call("Emulation.setEmulatedMedia", media="")
