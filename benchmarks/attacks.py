"""Is there a stronger attack, and what do certificates save? AAUC of ours against plain PGD, Auto-PGD alone and the PGD
of foolbox and of torchattacks, all with the same objective, on the same images, with as many gradients; and our own
with and without pruning.

    python benchmarks/attacks.py RUN... --data DIR [--samples 300] [--sets A,B] [--budget standard] [--record]

A lower AAUC is a stronger attack. foolbox and torchattacks are no dependencies: what is not installed is left out and
said (`pip install --no-deps foolbox==3.3.4 eagerpy GitPython gitdb smmap torchattacks==3.5.1 requests urllib3 certifi
charset_normalizer idna tqdm`, with `--target` a folder of its own, and that in PYTHONPATH). `--record` puts the tables
into RESULTS.md, in place of those that are there.
"""

import argparse
import importlib
import platform
import statistics
import time
import timeit
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certood.assembly import detector_of
from certood.attacks import BUDGETS, STARTS, Attack, AutoPGD, Enough, Found, Peek, SignAscent, SquareSearch, maximise
from certood.attacks.hunt import still
from certood.bounds import Box, full_precision
from certood.data.sources import load
from certood.detectors import Detector
from certood.evaluation import pixels
from certood.machine import device_of
from certood.metrics import conservative_auc, mean_confidence
from certood.runs import Run

RESULTS = Path(__file__).with_name("RESULTS.md")
HEADING = "## `python benchmarks/attacks.py`"
ALLOWED = 0.1  # points of AAUC that ours may be behind the best of the others, and pruned behind not pruned

Points = Callable[[Detector, Tensor, float, int], Tensor]


class Objective(torch.nn.Module):
    """Logits (score, 0): a cross-entropy to the second of them rises with the score."""

    def __init__(self, detector: Detector, device: torch.device) -> None:
        super().__init__()
        self.detector = detector
        self.where = torch.nn.Parameter(torch.zeros(1, device=device))  # libraries ask a parameter for the device

    def forward(self, z: Tensor) -> Tensor:
        score = self.detector.score(z)
        return torch.stack([score, torch.zeros_like(score)], 1)


def of_foolbox(detector: Detector, x: Tensor, eps: float, steps: int) -> Tensor:
    """Its l_inf PGD as it comes: random start, steps of eps / 30, cross-entropy."""
    foolbox = importlib.import_module("foolbox")
    model = foolbox.PyTorchModel(Objective(detector, x.device).eval(), bounds=(0, 1), device=x.device)
    second = torch.ones(len(x), dtype=torch.long, device=x.device)
    attack = foolbox.attacks.LinfProjectedGradientDescentAttack(steps=steps)
    points: Tensor = attack.run(model, x, foolbox.criteria.Misclassification(second), epsilon=eps)
    return points


def of_torchattacks(detector: Detector, x: Tensor, eps: float, steps: int) -> Tensor:
    """Its PGD as it comes: random start, cross-entropy, steps of eps / 4 (its 2/255 for 8/255)."""
    attack = importlib.import_module("torchattacks").PGD(Objective(detector, x.device).eval(), eps, eps / 4, steps)
    points: Tensor = attack(x, torch.ones(len(x), dtype=torch.long, device=x.device))
    return points


def libraries() -> tuple[dict[str, Points], list[str]]:
    """Those that are installed, and one line for each that is not."""
    found: dict[str, Points] = {}
    missing = []
    for name, points in (("foolbox", of_foolbox), ("torchattacks", of_torchattacks)):
        try:
            importlib.import_module(name)
            found[name] = points
        except ImportError as error:
            missing.append(f"Without {name}: {error}.")
    return found, missing


def nominal(budget: tuple[Attack, ...]) -> int:
    """Gradients that a budget may spend on an image, with no other run to transfer from."""
    without = (Peek, SquareSearch)
    return sum(
        getattr(attack, "steps", 0)
        for attack in budget
        if not isinstance(attack, without) and attack.start != "transfer"
    )


def awake(detector: Detector, box: Box, x: Tensor) -> dict[str, float]:
    """The share of images that show a gradient, for each start."""
    shares = {}
    for name, start in STARTS.items():
        z = box.project(start(box, x, torch.Generator().manual_seed(0))).requires_grad_()
        (slope,) = torch.autograd.grad(detector.score(z).sum(), z)
        shares[name] = float((~still(slope)).double().mean())
    return shares


def best_of(*found: Tensor) -> Tensor:
    return torch.stack(found).amax(0)


def measured(arguments: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    """For each run and set: AAUCs in percent by attack, what ours has spent, which starts have gradients."""
    budget, (others, _) = BUDGETS[arguments.budget], libraries()
    steps = nominal(budget)
    cells = []
    for folder in arguments.runs:
        trained = Run(folder).load()
        recipe, detector = trained.recipe, detector_of(trained, device)

        def images(name: str, limit: int | None, recipe: Any = recipe) -> Tensor:
            found = load(name, "test", folder=arguments.data, channels=recipe.channels, size=recipe.size, limit=limit)
            return pixels(found, np.arange(len(found))).to(device)

        with torch.no_grad():
            inside = torch.cat([detector.score(part) for part in images(recipe.in_set, None).split(500)])

        def aauc(scores: Tensor, inside: Tensor = inside) -> float:
            return 100 * conservative_auc(inside.cpu().numpy(), scores.cpu().numpy())

        for name in arguments.sets.split(","):
            x = images(name, arguments.samples)
            box = Box.around(x, recipe.eps)
            with torch.no_grad():
                ceiling, clean = detector.score_upper(box), detector.score(x)

            def attacked(*attacks: Attack, detector: Detector = detector, box: Box = box, x: Tensor = x) -> Tensor:
                return maximise(detector.score, box, x, budget=attacks).scores

            rivals = {"PGD 200": aauc(attacked(SignAscent("near", 200, recipe.eps / 10)))}
            rivals[f"Auto-PGD {steps}"] = aauc(attacked(AutoPGD("near", steps)))
            for library, points in others.items():
                torch.manual_seed(0)
                ends = box.project(points(detector, x, recipe.eps, steps).detach())
                with torch.no_grad():
                    rivals[f"{library} {steps}"] = aauc(best_of(detector.score(ends), clean))
            seconds: list[float] = []
            ours: list[Found] = []
            for enough in (None, Enough(inside)):
                began = time.perf_counter()
                ours.append(maximise(detector.score, box, x, budget=budget, ceiling=ceiling, enough=enough))
                seconds.append(time.perf_counter() - began)
            cells.append({
                "run": folder.name, "set": name, "gauc": aauc(ceiling), "auc": aauc(clean), "rivals": rivals,
                "ours": [aauc(found.scores) for found in ours],
                "gradients": [float(found.gradients.double().mean()) for found in ours],
                "evaluations": [float(found.evaluations.double().mean()) for found in ours],
                "confidences": [100 * mean_confidence(found.scores.cpu().numpy()) for found in ours],
                "seconds": seconds, "awake": awake(detector, box, x),
            })  # fmt: skip
    return cells


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def numbers(*values: float, digits: int = 2) -> list[str]:
    return [f"{value:.{digits}f}" for value in values]


def strength(cells: list[dict[str, Any]], budget: str) -> str:
    steps, called = nominal(BUDGETS[budget]), list(cells[0]["rivals"])
    rows = []
    for cell in cells:
        behind = cell["ours"][1] - min(cell["rivals"].values())
        rivals = numbers(*cell["rivals"].values())
        rows.append(
            [cell["run"], cell["set"], *numbers(cell["auc"]), *rivals, *numbers(*cell["ours"], behind, cell["gauc"])]
        )
    worst = max(cell["ours"][1] - min(cell["rivals"].values()) for cell in cells)
    verdict = "never" if worst <= ALLOWED else "NOT never"
    head = ["run", "out-set", "AUC", *called, f"ours {steps}", "ours, pruned", "pruned less best other", "GAUC"]
    return (
        f"AAUC in percent; a number behind an attack is the gradients it may spend on an image. Ours (budget {budget}, "
        f"pruned) is {verdict} more than {ALLOWED} above the best of the others: {worst:+.2f} at most.\n\n"
        f"{table(head, rows)}"
    )


def fold(before: float, after: float) -> str:
    return f"{before / after:.1f}" if after else "all"


def saving(cells: list[dict[str, Any]], budget: str) -> str:
    """Three things spare gradients. A sample that can never move leaves a loop, a step that does not go up is not asked
    for its gradient, both always; and what certificate and rank settle leaves the search, where it is pruned."""
    every = float(nominal(BUDGETS[budget]))
    rows = []
    for cell in cells:
        full, pruned = cell["gradients"]
        rows.append([
            cell["run"], cell["set"], *numbers(cell["ours"][1] - cell["ours"][0], digits=3),
            *numbers(full, pruned, digits=1), fold(every, pruned), fold(full, pruned),
            *numbers(*cell["evaluations"], digits=0), *numbers(*cell["confidences"]), *numbers(*cell["seconds"]),
        ])  # fmt: skip
    lines = []
    for run in dict.fromkeys(cell["run"] for cell in cells):
        mine = [cell for cell in cells if cell["run"] == run]
        full, pruned = (sum(cell["gradients"][at] for cell in mine) for at in (0, 1))
        worst = max(abs(cell["ours"][1] - cell["ours"][0]) for cell in mine)
        lines.append(
            f"{run}: ours spends {fold(every * len(mine), pruned)} times fewer than the {every:.0f} gradients an image "
            f"that the others may spend, over all sets; certificates and ranks alone save {fold(full, pruned)}-fold; "
            f"the AAUC differs by {worst:.3f} at most."
        )
    head = ["run", "out-set", "AAUC, pruned less full", "gradients an image, without certificates", "pruned"]
    head += [f"fold from {every:.0f}", "fold by certificates", "evaluations, without", "pruned"]
    head += ["mean confidence, without", "pruned", "seconds, without", "pruned"]
    return f"What is saved. {' '.join(lines)}\n\n{table(head, rows)}"


def starts(cells: list[dict[str, Any]]) -> str:
    head = ["percent of images with a gradient at the start", *(f"{cell['run']} {cell['set']}" for cell in cells)]
    rows = [[name, *numbers(*(100 * cell["awake"][name] for cell in cells), digits=1)] for name in STARTS]
    return table(head, rows)


def speed() -> str:
    draw = np.random.default_rng(0)
    ins, outs = draw.normal(1, 1, 26_032), draw.normal(0, 1, 10_000)
    times = timeit.repeat(lambda: conservative_auc(ins, outs), timer=time.process_time, number=1, repeat=31)
    return (
        f"Conservative AUC of 26,032 in- and 10,000 out-scores: {1000 * min(times):.1f} ms at best, "
        f"{1000 * statistics.median(times):.1f} ms in the median, of the process's own time."
    )


def record(text: str) -> None:
    """Put the section into RESULTS.md, in place of the one that is there."""
    before, _, after = RESULTS.read_text(encoding="utf-8").partition(HEADING)
    _, mark, others = after.partition("\n## ")
    RESULTS.write_text(f"{before.rstrip()}\n\n{text}\n{mark}{others}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--sets", default="fashion_mnist,nist_letters,cifar10,uniform_noise")
    parser.add_argument("--budget", default="standard", choices=BUDGETS)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    device = device_of(arguments.device)
    with full_precision(device):
        cells = measured(arguments, device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.processor() or platform.machine()}"
    about = f"{arguments.samples} images a set, {where}, torch {torch.__version__}, {datetime.now(UTC):%d %B %Y}."
    _, missing = libraries()
    parts = [
        about,
        *missing,
        strength(cells, arguments.budget),
        saving(cells, arguments.budget),
        starts(cells),
        speed(),
    ]
    text = "\n\n".join([f"{HEADING}: {', '.join(folder.name for folder in arguments.runs)}", *parts])
    print(text)
    if arguments.record:
        record(text)


if __name__ == "__main__":
    main()
