"""What does it cost that a bound holds in floating point? Widening, GAUC and time, against the float32 bound of the
same run on the same images; and how often that float32 bound is lower than the bound in float64, which nearly is exact.
Widening is from that one to the sound bound, in log-odds.

    python benchmarks/soundness.py RUN... --data DIR [--limit 500] [--repeats 5]

Prints Markdown. Out-sets are those below that are in DIR, and noise. Time is the median of bounds of one batch of 128,
both in turns. `certood train mnist --data DIR --epochs 3 --out RUN` makes a run to try it on.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from certood.bounds import Box, score_upper
from certood.data.sources import load
from certood.detectors import Softmax
from certood.errors import CertoodError
from certood.evaluation import pixels as as_float
from certood.guard import Guard
from certood.guard import load as load_guard
from certood.metrics import conservative_auc

OUT_SETS = {
    "mnist": ("fashion_mnist", "nist_letters", "cifar10", "uniform_noise"),
    "cifar10": ("svhn", "tiny_imagenet", "smooth_noise", "uniform_noise"),
    "svhn": ("cifar10", "tiny_imagenet", "smooth_noise", "uniform_noise"),
}
BATCH = 128
COLUMNS = (
    *("run", "out-set", "eps", "float32 bounds below the exact ones", "median widening", "mean", "largest"),
    *("GAUC float32", "GAUC sound", "lost", "time, sound / float32"),
)


def pixels(guard: Guard, name: str, split: str, folder: Path, limit: int) -> Tensor:
    channels, size = guard.form
    found = load(name, split, folder=folder, channels=channels, size=size, limit=limit)
    return as_float(found, np.arange(len(found)))


def bounds(network: nn.Module, x: Tensor, eps: float, sound: bool) -> Tensor:
    parts = (score_upper(network, Box.around(part, eps), sound) for part in torch.split(x, BATCH))
    return torch.cat(list(parts))


def exact(network: nn.Module, x: Tensor, eps: float) -> Tensor:
    """The bound of the same float32 box in float64, whose own rounding is 5e8 times smaller."""
    double, found = copy.deepcopy(network).double(), []
    for part in torch.split(x, BATCH):
        box = Box.around(part, eps)
        found.append(score_upper(double, Box(box.lower.double(), box.upper.double())))
    return torch.cat(found)


def medians(subjects: dict[bool, Callable[[], object]], repeats: int) -> dict[bool, float]:
    times: dict[bool, list[float]] = {name: [] for name in subjects}
    for _ in range(repeats + 1):  # the first warms up
        for name, subject in subjects.items():
            start = time.process_time()
            subject()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{arguments.limit} images a set, batch {BATCH}, {torch.get_num_threads()} threads, {torch.__version__}\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    for folder in arguments.runs:
        guard = load_guard(folder, "cpu")
        for row in rows(guard, arguments.data, arguments.limit, arguments.repeats):
            print(f"| {folder.name} | {' | '.join(row)} |", flush=True)


def rows(guard: Guard, folder: Path, limit: int, repeats: int) -> Iterator[list[str]]:
    recipe, network = guard.recipe, guard.detector.network
    inside = pixels(guard, recipe.in_set, "test", folder, limit)
    scores = torch.cat([Softmax(network).score(part) for part in torch.split(inside, BATCH)]).numpy()
    for name in OUT_SETS[recipe.in_set]:
        try:
            x = pixels(guard, name, "train" if name == "tiny_imagenet" else "test", folder, limit)
        except CertoodError as error:
            yield [name, f"left out: {error}"]
            continue
        plain, sound = (bounds(network, x, recipe.eps, kind) for kind in (False, True))
        true = exact(network, x, recipe.eps)
        wider = sound - true
        before, after = (100 * conservative_auc(scores, found.numpy()) for found in (plain, sound))
        timed = {kind: partial(bounds, network, x[:BATCH], recipe.eps, kind) for kind in (False, True)}
        seconds = medians(timed, repeats)
        yield [
            *(name, f"{recipe.eps:g}", f"{float((plain < true).double().mean()):.0%}"),
            *(f"{float(value):.1e}" for value in (wider.median(), wider.mean(), wider.max())),
            *(f"{before:.3f}", f"{after:.3f}", f"{before - after:.3f}", f"{seconds[True] / seconds[False]:.2f}"),
        ]


if __name__ == "__main__":
    main()
