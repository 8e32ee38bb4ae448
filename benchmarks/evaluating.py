"""Evaluation: 10,000 images clean and certified, and what pruning saves of the paper's attack budget on 1,000 images.

    python benchmarks/evaluating.py [--run RUN --data DIR --out-set fashion_mnist]

The attack needs a trained run and its images, and is left out without. Without pruning it is run on the first 100.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import THREADS, machine, peak, record, table, verdict

from certood import networks
from certood.assembly import detector_of
from certood.attacks import Enough, maximise
from certood.bounds import Box, full_precision
from certood.data.sources import ImageSet, load
from certood.detectors import Softmax
from certood.evaluation import Plan, evaluate, pixels
from certood.machine import hold_memory
from certood.runs import Run

EPS, POINTS, FEWER = 0.3, 1000, 100
CPU = torch.device("cpu")


def ten_thousand(network: str) -> tuple[float, float]:
    """Seconds of all of `evaluate` for images of MNIST's form, sound bounds and float32 bounds."""
    stored = np.random.default_rng(0).integers(0, 256, (10_000, 1, 28, 28)).astype(np.uint8)
    images = ImageSet(
        "ten thousand", "test", (1, 28, 28), 10, tuple("0123456789"), "none", len(stored),
        partial(np.take, stored, axis=0), np.arange(len(stored)) % 10,
    )  # fmt: skip
    torch.manual_seed(0)
    own = networks.build(network, 1, 28, 10).to(memory_format=torch.channels_last).requires_grad_(False)
    seconds = []
    for sound in (True, False):
        start = time.perf_counter()
        done = sum(
            len(batch["own"].rows)
            for batch in evaluate({"own": Softmax(own, sound=sound)}, images, EPS, Plan("none"), {}, CPU)
        )
        seconds.append(time.perf_counter() - start)
        if done != len(stored):
            raise RuntimeError(f"{done} rows for {len(stored)} images")
    return seconds[0], seconds[1]


def pruning(folder: Path, data: Path | None, out_set: str) -> tuple[list[str], str]:
    trained = Run(folder).load()
    chosen, detector = trained.recipe, detector_of(trained, CPU)
    ins, outs = (
        load(name, "test", folder=data, channels=chosen.channels, size=chosen.size, limit=2000)
        for name in (chosen.in_set, out_set)
    )
    rows, verdicts = [], []
    with full_precision(CPU):
        inside = detector.score(pixels(ins, np.arange(len(ins))))
        for count in (FEWER, POINTS):
            x = pixels(outs, np.arange(count) % len(outs))
            box = Box.around(x, chosen.eps)
            ceiling = detector.score_upper(box)
            for name, enough in (("as it comes", None), ("pruned", Enough(inside))):
                if count == POINTS and enough is None:
                    continue
                start = time.perf_counter()
                found = maximise(detector.score, box, x, budget="paper", ceiling=ceiling, enough=enough)
                seconds = time.perf_counter() - start
                gradients = float(found.gradients.double().mean())
                rows.append([
                    name, str(count), f"{gradients:.1f}", f"{found.evaluations.double().mean():.1f}", f"{seconds:.1f}",
                    f"{1000 * seconds / count:.1f}",
                ])  # fmt: skip
                if name == "as it comes":
                    whole, slow = gradients, seconds / count
                elif count == FEWER:
                    verdicts = [
                        verdict(f"gradient evaluations, pruned / not, {FEWER} images", gradients / whole, 0.2),
                        verdict(f"seconds, pruned / not, {FEWER} images", seconds / count / slow, 1),
                    ]
    head = ["attack, budget `paper`", "images", "gradients an image", "evaluations", "seconds", "ms an image"]
    return verdicts, table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out-set", default="fashion_mnist")
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    hold_memory()
    about, rows, verdicts = machine(), [], []
    for network in ("S", "M"):
        sound, plain = ten_thousand(network)
        rows.append([network, f"{sound:.1f}", f"{plain:.1f}"])
        if network == "S":
            verdicts.append(verdict("10,000 images, clean and certified (sound), cpu net S, s", sound, 20))
    parts = [table(["10,000 images, clean and certified", "seconds, sound", "seconds, float32 bounds"], rows)]
    if chosen.run:
        more, pruned = pruning(chosen.run, chosen.data, chosen.out_set)
        verdicts += more
        parts.append(f"Attacks on {chosen.run.name}, images of {chosen.out_set}:\n\n{pruned}")
    else:
        parts.append(
            "Attacks, pruned and not: `--run RUN --data DIR`, or `benchmarks/attacks.py`, which compares more."
        )
    record("evaluating.py", "what an evaluation costs", [about, "\n".join(verdicts), *parts, peak()])


if __name__ == "__main__":
    main()
