"""Is there a stronger attack, and what do certificates save? AAUC of ours against plain PGD, Auto-PGD alone and
foolbox's PGD with the same objective, on the same images; our own with and without pruning.

    python benchmarks/attacks.py RUN... --data DIR [--samples 200] [--sets A,B] [--budget standard]

A lower AAUC is a stronger attack. "nominal" is what the budget may spend without pruning, "spent" what it did, in
gradient evaluations an image. foolbox is no dependency: without it (pip install foolbox==3.3.4) its column is empty.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from certood.assembly import detector_of
from certood.attacks import BUDGETS, Attack, AutoPGD, Enough, Peek, SignAscent, SquareSearch, maximise
from certood.bounds import Box
from certood.data.sources import load
from certood.detectors import Detector
from certood.evaluation import pixels
from certood.metrics import conservative_auc
from certood.runs import Run


def foolbox_points(detector: Detector, x: Tensor, eps: float, steps: int) -> Tensor | None:
    """Its l_inf PGD, random start, default step; the loss is our score."""
    try:
        import foolbox
    except ImportError:
        return None

    class Confidence(foolbox.attacks.LinfProjectedGradientDescentAttack):
        def get_loss_fn(self, model: object, labels: object) -> Callable[..., object]:
            import eagerpy

            return lambda z: eagerpy.astensor(detector.score(z.raw)).sum()

    class Logits(torch.nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return detector.log_probs(z)

    model = foolbox.PyTorchModel(Logits().eval(), bounds=(0, 1))
    torch.manual_seed(0)
    never = foolbox.criteria.Misclassification(torch.zeros(len(x), dtype=torch.long))
    return Confidence(steps=steps).run(model, x, never, epsilon=eps)


def nominal(budget: tuple[Attack, ...]) -> int:
    """Gradients that a budget may spend on an image, with no other run to transfer from."""
    without = (Peek, SquareSearch)
    return sum(
        getattr(attack, "steps", 0)
        for attack in budget
        if not isinstance(attack, without) and attack.start != "transfer"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--sets", default="fashion_mnist,nist_letters,cifar10,uniform_noise")
    parser.add_argument("--budget", default="standard", choices=BUDGETS)
    arguments = parser.parse_args()
    budget = BUDGETS[arguments.budget]
    steps = nominal(budget)
    print(f"{arguments.samples} images a set, {torch.get_num_threads()} threads; AAUC in percent, lower is stronger")
    print(f"{'':<26}{'':>6} | PGD   PGD   APGD  foolb.| ours, budget {arguments.budget}, nominal {steps} gradients")
    print(
        f"{'run, set':<26}{'GAUC':>6} | {200:<5} {steps:<5} {steps:<5} {steps:<6}| full   pruned spent  pruned  seconds"
    )
    for folder in arguments.runs:
        trained = Run(folder).load()
        recipe, detector = trained.recipe, detector_of(trained, torch.device("cpu"))

        def images(name: str, limit: int | None, recipe=recipe) -> Tensor:
            found = load(name, "test", folder=arguments.data, channels=recipe.channels, size=recipe.size, limit=limit)
            return pixels(found, np.arange(len(found)))

        with torch.no_grad():
            inside = torch.cat([detector.score(part) for part in images(recipe.in_set, None).split(500)])
        for name in arguments.sets.split(","):
            x = images(name, arguments.samples)
            box = Box.around(x, recipe.eps)
            with torch.no_grad():
                ceiling, clean = detector.score_upper(box), detector.score(x)

            def madry(steps: int, eps=recipe.eps) -> Attack:
                return SignAscent("near", steps, step=eps / 10)

            def aauc(scores: Tensor, inside=inside) -> float:
                return 100 * conservative_auc(inside.numpy(), scores.numpy())

            cells = [
                aauc(maximise(detector.score, box, x, budget=[attack]).scores)
                for attack in (madry(200), madry(steps), AutoPGD("near", steps))
            ]
            points = foolbox_points(detector, x, recipe.eps, steps)
            if points is not None:
                with torch.no_grad():
                    cells.append(aauc(torch.maximum(detector.score(box.project(points)), clean)))
            began = time.perf_counter()
            full = maximise(detector.score, box, x, budget=budget, ceiling=ceiling)
            between = time.perf_counter()
            less = maximise(detector.score, box, x, budget=budget, ceiling=ceiling, enough=Enough(inside))
            ended = time.perf_counter()
            texts = "".join(f"{cell:>6.2f}" for cell in cells) + " " * (24 - 6 * len(cells))
            spent = [float(found.gradients.double().mean()) for found in (full, less)]
            ours = f"{aauc(full.scores):>7.2f}{aauc(less.scores):>7.2f}{spent[0]:>7.1f}{spent[1]:>7.1f}"
            times = f"{between - began:>6.1f}{ended - between:>6.1f}"
            print(f"{folder.name + ' ' + name:<25}{aauc(ceiling):>6.2f} |{texts} |{ours}{times}", flush=True)


if __name__ == "__main__":
    main()
