"""Does bfloat16 in training cost accuracy or guarantees? GOOD_100 in float32 and bfloat16, three seeds each.

Measured and certified in float32 either way: accuracy on the test split, and the GAUC against the out-set's test split.

    python benchmarks/precision.py [--data DIR] [--network S] [--epochs 6] [--limit 10000] [--seeds 3]

Without --data (or CERTOOD_DATA) it trains on the built-in digits and photographs.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from measuring import THREADS, machine, peak, record, table

from certood.assembly import detector_of
from certood.bounds import Box, full_precision
from certood.data.sources import load
from certood.machine import Machine
from certood.metrics import conservative_auc
from certood.recipes import recipe
from certood.runs import Run
from certood.training import train

CPU = torch.device("cpu")
OUT_IMAGES = 2000


def judged(run: Run, data: Path | None) -> tuple[float, float]:
    """Accuracy and GAUC in percent."""
    trained = run.load()
    chosen, detector = trained.recipe, detector_of(trained, CPU)
    ins = load(chosen.in_set, "test", folder=data, channels=1, size=28)
    outs = load("fashion_mnist" if data else "demo_letters", "test", folder=data, channels=1, size=28, limit=OUT_IMAGES)
    with torch.no_grad(), full_precision(CPU):
        x = torch.from_numpy(ins.images(np.arange(len(ins)))).float() / 255
        answers = [detector.log_probs(part) for part in x.split(500)]
        right = torch.cat(answers).argmax(1).numpy() == ins.labels(np.arange(len(ins)))
        inside = torch.cat([detector.score(part) for part in x.split(500)])
        out = torch.from_numpy(outs.images(np.arange(len(outs)))).float() / 255
        bounds = torch.cat([detector.score_upper(Box.around(part, chosen.eps)) for part in out.split(250)])
    return 100 * float(right.mean()), 100 * conservative_auc(inside.numpy(), bounds.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("CERTOOD_DATA"))
    parser.add_argument("--network", default="S")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    data = Path(chosen.data) if chosen.data else None
    torch.set_num_threads(THREADS)
    about = machine()
    base = replace(
        recipe("mnist" if data else "demo", epochs=chosen.epochs if data else 5 * chosen.epochs),
        network=chosen.network, in_limit=chosen.limit if data else 0, out_limit=chosen.limit if data else 0,
    )  # fmt: skip
    rows, found = [], dict[str, list[tuple[float, float, float]]]()
    for seed in range(chosen.seeds):
        for precision in ("32-true", "bf16-mixed"):
            with tempfile.TemporaryDirectory() as folder:
                start = time.perf_counter()
                own = replace(base, seed=seed, precision=precision)
                run = train(own, Path(folder) / "run", data, Machine(device="cpu"), quiet=True)
                seconds = time.perf_counter() - start
                accuracy, gauc = judged(run, data)
            found.setdefault(precision, []).append((accuracy, gauc, seconds))
            rows.append([precision, str(seed), f"{accuracy:.2f}", f"{gauc:.2f}", f"{seconds:.0f}"])
            print(*rows[-1], flush=True)
    lines = []
    for at, what in enumerate(("accuracy", "GAUC")):
        full, low = ([one[at] for one in found[precision]] for precision in ("32-true", "bf16-mixed"))
        spread = max(full) - min(full)
        apart = statistics.mean(low) - statistics.mean(full)
        within = "within" if abs(apart) <= spread else "NOT within"
        difference = f"mean {what} in bfloat16 less float32 {apart:+.2f} points; float32's seeds span {spread:.2f}"
        lines.append(f"- {within} seed noise: {difference}")
    faster = sum(one[2] for one in found["32-true"]) / sum(one[2] for one in found["bf16-mixed"])
    size = f"{chosen.limit:,} images of MNIST" if data else "the 4,000 built-in digits"
    outside = f"{OUT_IMAGES:,} of fashion_mnist" if data else "demo_letters"
    what = (
        f"GOOD_100, network {base.network}, {size}, {base.epochs} epochs; GAUC at eps {base.eps:g} against {outside}, "
        f"sound bounds. A small training: it shows whether the two differ, not what a full one reaches. Training in "
        f"bfloat16 took {faster:.2f} times less time."
    )
    head = ["precision of training", "seed", "accuracy, %", "GAUC, %", "seconds"]
    record("precision.py", "bfloat16 in training", [about, what, "\n".join(lines), table(head, rows), peak()])


if __name__ == "__main__":
    main()
