"""Is loading hidden? Batches and augmentation over the step that they feed, and samples a second from end to end.

python benchmarks/loading.py
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import THREADS, interleaved, machine, peak, record, table, verdict

from certood import networks
from certood.assembly import augmentation, method_of, optimiser_of
from certood.data.sources import ImageSet
from certood.data.stream import Batches, generator
from certood.machine import Machine, launch
from certood.objective import Step
from certood.recipes import Recipe, recipe
from certood.training import train


def images(channels: int, size: int, classes: int) -> ImageSet:
    stored = np.random.default_rng(0).integers(0, 256, (10_000, channels, size, size)).astype(np.uint8)
    names = tuple(map(str, range(classes)))
    take = partial(np.take, stored, axis=0)
    return ImageSet(
        "drawn", "train", stored.shape[1:], classes, names, "none", len(stored), take, np.arange(10_000) % 10
    )


def shares() -> tuple[list[str], str]:
    """For each: one batch and its augmentation, in and out, and the step, each alone."""
    cases: dict[str, tuple[Recipe, int]] = {
        "MNIST, S": (recipe("mnist"), 128),
        "MNIST, L": (replace(recipe("mnist"), network="L"), 128),
        "CIFAR-10, AutoAugment, L": (replace(recipe("cifar10", scale="paper"), network="L"), 128),
        "CIFAR-10, AutoAugment, XL": (recipe("cifar10", scale="paper"), 128),
    }
    rows, verdicts = [], []
    for name, (chosen, batch) in cases.items():
        chosen = replace(chosen, batch_size=batch, lr=1e-6)
        outside = chosen.size + chosen.out_margin
        batches = Batches(images(chosen.channels, chosen.size, 10), images(chosen.channels, outside, 10), batch, 0)
        augment = augmentation(chosen)
        torch.manual_seed(0)
        own = networks.build(chosen.network, chosen.channels, chosen.size, 10).to(memory_format=torch.channels_last)
        step = Step(launch(Machine(device="cpu"), chosen), chosen, method_of(chosen), own, optimiser_of(chosen, own), 1)
        x, x_out = (torch.rand(batch, chosen.channels, chosen.size, chosen.size) for _ in range(2))
        labels = torch.randint(10, (batch,))

        def augmented(batches: Batches = batches, augment: Callable[..., object] = augment) -> None:
            found = batches[3]
            augment(found.images, generator(0, "augment in", 3))
            augment(found.out_images, generator(0, "augment out", 3))

        subjects = {
            "read": partial(batches.__getitem__, 3),
            "read and augment": augmented,
            "step": partial(step, 0, x, labels, x_out, 0.3, 0.1),
        }
        times = interleaved(subjects, 12, least=2, most=8)
        share = times["read and augment"].median / times["step"].median
        milliseconds = [f"{1000 * times[key].median:.1f}" for key in subjects]
        rows.append([name, *milliseconds, f"{100 * share:.1f} %"])
        if "XL" in name:
            verdicts.append(verdict("batch and augmentation over step, CIFAR-10 of the paper, percent", 100 * share, 5))
    head = ["batch 128 + 128", "read, ms", "read and augment, ms", "step, ms", "share"]
    return verdicts, table(head, rows)


def end_to_end() -> str:
    """Whole epochs of `train`, its looks, log and checkpoints included, on the built-in images."""
    rows = []
    for title, changes in {
        "XS, as the demo": {},
        "S": {"network": "S"},
        "S, GOOD_80": {"network": "S", "quantile": 0.8},
        "S, bfloat16": {"network": "S", "precision": "bf16-mixed"},
    }.items():
        # kappa and eps from the first step on, and too small to matter
        chosen = replace(recipe("demo", epochs=2), kappa_start=0.0, kappa_ramp=0.0, eps_start=0.0, eps_ramp=0.0)
        chosen = replace(chosen, eps=1e-3, kappa=1e-3, **changes)  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run = train(chosen, Path(folder) / "run", machine=Machine(device="cpu"), quiet=True)
            whole = time.perf_counter() - start
            log = [line.split(",") for line in (run.folder / "log.csv").read_text().splitlines()]
        last = float(log[-1][log[0].index("seconds")])
        rows.append([title, f"{4000 / last:.0f}", f"{8000 / whole:.0f}"])
    head = ["certood train demo, in-samples a second", "the last epoch", "all of it, start and end included"]
    return table(head, rows)


def main() -> None:
    torch.set_num_threads(THREADS)
    about = machine()
    verdicts, shared = shares()
    record("loading.py", "loading, augmentation, end to end", [about, *verdicts, shared, end_to_end(), peak()])


if __name__ == "__main__":
    main()
