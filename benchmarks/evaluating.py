"""Evaluation: 10,000 images clean and certified, and what pruning saves of the paper's attack budget on 1,000 images.

    python benchmarks/evaluating.py

The network that is attacked is trained here by GOOD_100 on the built-in digits, so that it needs no files. The attack
without pruning is run on fewer images, and its gradients an image do not depend on how many they are.
"""

import tempfile
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
from certood.machine import Machine
from certood.recipes import recipe
from certood.training import train

EPS, POINTS, FEWER = 0.3, 1000, 20
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


def pruning() -> tuple[list[str], str]:
    with tempfile.TemporaryDirectory() as folder:
        run = train(recipe("demo"), Path(folder) / "run", machine=Machine(device="cpu"), quiet=True)
        detector = detector_of(run.load(), CPU)
    ins = load("demo_digits", "test", folder=None, channels=1, size=28)
    outs = load("demo_letters", "test", folder=None, channels=1, size=28)
    rows, verdicts = [], []
    with full_precision(CPU):
        inside = torch.cat([detector.score(pixels(ins, np.arange(len(ins))))]).detach()
        for count in (FEWER, POINTS):
            x = pixels(outs, np.arange(count) % len(outs))
            box = Box.around(x, EPS)
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
                elif count == POINTS:
                    verdicts = [
                        verdict("gradient evaluations, pruned / not", gradients / whole, 0.2),
                        verdict("seconds an image, pruned / not", seconds / count / slow, 1),
                    ]
    head = ["attack, budget `paper`", "images", "gradients an image", "evaluations", "seconds", "ms an image"]
    return verdicts, table(head, rows)


def main() -> None:
    torch.set_num_threads(THREADS)
    about, rows, verdicts = machine(), [], []
    for network in ("S", "M"):
        sound, plain = ten_thousand(network)
        rows.append([network, f"{sound:.1f}", f"{plain:.1f}"])
        if network == "S":
            verdicts.append(verdict("10,000 images, clean and certified (sound), cpu net S, s", sound, 20))
    more, pruned = pruning()
    times = table(["10,000 images, clean and certified", "seconds, sound", "seconds, float32 bounds"], rows)
    record("evaluating.py", "what an evaluation costs", [about, "\n".join([*verdicts, *more]), times, pruned, peak()])


if __name__ == "__main__":
    main()
