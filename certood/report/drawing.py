"""How all figures look: a size, colours that the colour-blind tell apart, words, panels, keys. No pyplot, no state.

Figures are 10 inches wide with letters of 14 points and more: at 350 pixels, on a phone, these are still 7 high.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D

from certood.report.evaluated import Evaluated

WIDTH = 10.0
TEXT, SMALL = 16, 14  # points
LINE = 0.3  # inches from one line of words to the next
INK, FAINT = "#222222", "#d9d9d9"
# Okabe and Ito (2008), those with a contrast of 3 to 1 or nearly so on white, the most different first.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#4d4d4d", "#e69f00", "#56b4e9")


Style = Literal["-", "--", ":", "none"]


class Form(NamedTuple):
    """One of the three columns of scores, and how it is drawn everywhere."""

    column: str
    word: str
    auc: str
    style: Style
    marker: str


FORMS = (
    Form("score", "clean", "AUC", "-", "o"),
    Form("adversarial", "attacked", "AAUC", "--", "^"),
    Form("certified", "guaranteed", "GAUC", ":", "s"),
)


def colours(runs: Sequence[Evaluated]) -> dict[str, str]:
    """Of each run, by name: the same in all figures of a report."""
    steps = max(1, len(runs) - 1)
    many = [to_hex(colormaps["viridis"](0.9 * at / steps)) for at in range(len(runs))]
    return dict(zip((run.name for run in runs), PALETTE if len(runs) <= len(PALETTE) else many, strict=False))


def tint(colour: str) -> str:
    """So light that black words stand on it."""
    red, green, blue = (1 - 0.45 * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def plain(words: str) -> str:
    """Names of runs and classes are no mathematics, and what the font does not have is a box."""
    return "".join(each if _drawable(each) else "□" for each in words).replace("$", r"\$")


@cache
def _drawable(character: str) -> bool:
    return bool(get_font(findfont(FontProperties())).get_char_index(ord(character)))


def shortened(words: str, length: int) -> str:
    return words if len(words) <= length else f"{words[: length - 1]}…"


def percent(share: float) -> str:
    """With as many digits as a small picture has room for."""
    return f"{100 * share:.0f} %"


def at_most(share: float) -> str:
    """Rounded up, since it is a bound; the hair below makes 0.2 no 20.1 %."""
    return f"{min(100.0, math.ceil(1000 * share - 1e-6) / 10):.1f} %"


def listed(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def blank(height: float, width: float = WIDTH) -> Figure:
    return Figure(figsize=(width, height), facecolor="white")


class Panels(NamedTuple):
    figure: Figure
    axes: list[Axes]


def panels(titles: Sequence[str], height: float, top: float, left: float = 1.0, below: float = 0.75) -> Panels:
    """Panels two in a row, `height` inches each, under `top` inches for a key; one alone has all the width."""
    columns = min(2, len(titles))
    rows = -(-len(titles) // columns)
    above = 0.5  # for the title of a panel
    row = above + height + below
    figure = blank(top + rows * row)
    total = figure.get_figheight()
    width = WIDTH / columns
    axes = []
    for at, title in enumerate(titles):
        bottom = total - top - (at // columns + 1) * row + below
        place = (at % columns * width + left, bottom, width - left - 0.4, height)
        panel = figure.add_axes((place[0] / WIDTH, place[1] / total, place[2] / WIDTH, place[3] / total))
        panel.set_title(plain(title), loc="left", fontsize=TEXT, color=INK)
        bare(panel)
        axes.append(panel)
    return Panels(figure, axes)


def bare(panel: Axes) -> None:
    """Only lines that are read."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color("#888888")
    panel.tick_params(labelsize=SMALL, colors=INK, length=3, color="#888888")
    panel.set_axisbelow(True)


class Sign(NamedTuple):
    """One entry of a key."""

    words: str
    colour: str = INK
    style: Style = "none"
    marker: str = "none"
    hollow: bool = False


def key_height(signs: Sequence[Sequence[Sign]]) -> float:
    """Inches that the keys need, one under the other."""
    return 0.1 + sum(LINE * -(-len(each) // _columns(each)) for each in signs if each)


def key(figure: Figure, signs: Sequence[Sequence[Sign]]) -> None:
    """The keys, from the top of the figure downwards."""
    top = 0.05
    for each in signs:
        if each:
            columns = _columns(each)
            cell = WIDTH / columns if len(each) > columns else 0.0
            left = 0.15
            for at, sign in enumerate(each):
                row, column = divmod(at, columns)
                x = 0.15 + column * cell if cell else left
                _sign(figure, sign, x, top + LINE * (row + 0.5))
                left += _width(sign)
            top += LINE * -(-len(each) // columns)


def _columns(signs: Sequence[Sign]) -> int:
    if sum(map(_width, signs)) <= WIDTH - 0.2:
        return len(signs)
    return max(1, int((WIDTH - 0.2) / max(map(_width, signs))))


def _width(sign: Sign) -> float:
    return 0.95 + 0.125 * len(sign.words)


def _sign(figure: Figure, sign: Sign, left: float, down: float) -> None:
    height = figure.get_figheight()
    y = 1 - down / height
    line = Line2D(
        [left / WIDTH, (left + 0.3) / WIDTH, (left + 0.6) / WIDTH], [y] * 3, color=sign.colour, linestyle=sign.style,
        linewidth=2.5, marker=sign.marker, markevery=[1], markersize=10, markeredgewidth=2,
        markerfacecolor="white" if sign.hollow else sign.colour, transform=figure.transFigure,
    )  # fmt: skip
    figure.add_artist(line)
    figure.text((left + 0.72) / WIDTH, y, plain(sign.words), fontsize=SMALL, color=INK, va="center_baseline")
