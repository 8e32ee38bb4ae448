"""A sheet of images, words and bars, in inches from the top left: one axes, since hundreds would be slow."""

from typing import Any, final

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from certood.report.drawing import INK, SMALL, WIDTH, blank, plain, tint

Pixels = NDArray[np.float64]  # [H, W] or [H, W, 3], in [0, 1]


def pixels(image: NDArray[Any]) -> Pixels:
    """Of a stored image or point, uint8 or float; grey if it has no three channels.  # [C, H, W] -> [H, W(, 3)]"""
    shares = image / 255 if image.dtype == np.uint8 else image.astype(np.float64)
    return shares[0] if len(shares) < 3 else np.moveaxis(shares[:3], 0, 2)


def amplified(clean: Pixels, changed: Pixels, eps: float) -> Pixels:
    """Their difference: grey where nothing changed, black and white where all of eps was spent."""
    return np.clip(0.5 + (changed - clean) * factor(eps), 0, 1)


def factor(eps: float) -> float:
    return 0.5 / eps


@final
class Sheet:
    def __init__(self, height: float) -> None:
        self.figure = blank(height)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(height, 0)
        self.axes.set_autoscale_on(False)

    def image(self, shown: Pixels, left: float, top: float, size: float) -> None:
        """Pixels stay squares: no interpolation."""
        extent = (left, left + size, top + size, top)
        self.axes.imshow(shown, "gray", aspect="auto", interpolation="none", vmin=0, vmax=1, extent=extent)
        self.axes.add_patch(Rectangle((left, top), size, size, fill=False, edgecolor="#888888", linewidth=0.8))

    def words(
        self, left: float, middle: float, words: str, size: int = SMALL, align: str = "left", bold: bool = False,
    ) -> None:  # fmt: skip
        self.axes.text(
            left, middle, plain(words), fontsize=size, color=INK, ha=align, va="center_baseline",
            fontweight="bold" if bold else "normal",
        )  # fmt: skip

    def bar(self, left: float, middle: float, width: float, share: float, colour: str, height: float = 0.26) -> None:
        """As long as its share of a pale track; light enough for words to stand on."""
        for length, face in ((width, "#f2f2f2"), (width * share, tint(colour))):
            self.axes.add_patch(Rectangle((left, middle - height / 2), length, height, facecolor=face, linewidth=0))

    def tick(self, left: float, middle: float, width: float, share: float, height: float = 0.34) -> None:
        """Where a guaranteed bound lies on such a bar."""
        at = left + width * share
        self.axes.plot([at, at], [middle - height / 2, middle + height / 2], color=INK, linewidth=3)
