"""Every number of the paper's tables, in percent: `aucs.csv` and `mean_confidences.csv` (Bitterwolf et al. 2020), and
which out-sets they are of. The paper's sets are the originals, its networks and trainings those of `--scale paper`.
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# How the paper calls the sets.
NAMES = {
    "mnist": "MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion_mnist": "FashionMNIST",
    "emnist_letters": "EMNIST Letters",
    "lsun_classroom": "LSUN Classroom",
    "omniglot": "Omniglot",
    "notmnist": "notMNIST",
    "imagenet_minus": "Imagenet-",
    "tiny_images": "80M Tiny Images",
    "uniform_noise": "Uniform Noise",
    "smooth_noise": "Smooth Noise",
}
MAIN = {
    "mnist": ("fashion_mnist", "emnist_letters", "cifar10", "uniform_noise"),
    "svhn": ("cifar100", "cifar10", "lsun_classroom", "uniform_noise"),
    "cifar10": ("cifar100", "svhn", "lsun_classroom", "uniform_noise"),
}
ADDITIONAL = {
    "mnist": ("omniglot", "notmnist", "tiny_images"),
    "svhn": ("smooth_noise", "imagenet_minus", "tiny_images"),
    "cifar10": ("smooth_noise", "imagenet_minus", "tiny_images"),
}
RADII = {"mnist": (0.3, 0.4), "svhn": (0.03, 0.06), "cifar10": (0.01, 0.03)}  # those of training, and the larger ones
# Ours, where the first is not to be had and the second is. The paper has no numbers of it.
STANDS_IN = {"emnist_letters": "nist_letters"}


class Published(NamedTuple):
    """One row of the paper's tables, in percent."""

    accuracy: float
    auc: float
    aauc: float
    gauc: float


class PublishedConfidences(NamedTuple):
    """One row of the paper's table of mean confidences, in percent."""

    inside: float
    outside: float
    bound: float  # mean of the guaranteed upper bounds on the out-set


def published(method: str, in_set: str, eps: float, out_set: str) -> Published | None:
    """The paper's numbers for a method as it names it (GOOD_80), or None where it has none."""
    return _aucs().get((NAMES.get(in_set, ""), eps, _plain(method), NAMES.get(out_set, "")))


def published_confidences(method: str, in_set: str, eps: float, out_set: str) -> PublishedConfidences | None:
    """The paper's mean confidences, of its main out-sets and its own radii, or None where it has none."""
    return _confidences().get((NAMES.get(in_set, ""), eps, _plain(method), NAMES.get(out_set, "")))


@cache
def _aucs() -> dict[tuple[str, float, str, str], Published]:
    return {
        (row["in_dataset"], float(row["epsilon"]), _plain(row["method"]), row["out_dataset"]): Published(
            *(float(row[name] or "nan") for name in Published._fields)
        )
        for row in _rows("aucs.csv")
    }


@cache
def _confidences() -> dict[tuple[str, float, str, str], PublishedConfidences]:
    return {
        (row["in_dataset"], float(row["epsilon"]), _plain(row["method"]), row["out_dataset"]): PublishedConfidences(
            *(float(row[f"mean_{name}"]) for name in ("confidence_in", "confidence_out", "upper_bound_out"))
        )
        for row in _rows("mean_confidences.csv")
    }


def _plain(method: str) -> str:
    return method.upper().replace("_", "")


def _rows(name: str) -> list[dict[str, str]]:
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
