"""The one training loop. Everything random is a function of the seed and the step, so a run that was stopped needs no
more than its weights, its optimiser and its step number to go on bit for bit."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

from certood.assembly import Sets, augmentation, image_sets, initial_network, learning_rate, method_of, optimiser_of
from certood.bounds import Box
from certood.card import card
from certood.data.sources import ImageSet
from certood.data.stream import Batches, generator, seed_for
from certood.detectors import Detector, Softmax
from certood.errors import NoGuarantee, RunError, TrainingFailed
from certood.interrupts import Stop, stop_requests
from certood.methods import GOOD, Method
from certood.pictures import write_sheet
from certood.progress import Progress
from certood.recipes import Recipe
from certood.runs import Run, digest
from certood.schedules import Ramp
from certood.tally import DIVERGED, Tally, Watch

LOOKS = 5  # times an epoch that the out-confidence and its bound are measured


@final
@dataclass(frozen=True)
class Machine:
    """How a run is executed: nothing here is part of what it computes, so nothing here is part of the recipe."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    workers: int = 0
    checkpoint_minutes: float = 10.0


def train(
    recipe: Recipe, folder: Path, data: Path | None = None, machine: Machine | None = None, resume: bool = False
) -> Run:
    """Train `recipe` into a run folder; with `resume`, go on from its last checkpoint if there is one."""
    run = Run(folder)
    if run.prepare(recipe, resume):
        return run
    method = method_of(recipe)
    sets = image_sets(recipe, data)
    network = initial_network(recipe, sets.in_set.classes)
    try:
        run.create(recipe)
        with stop_requests() as stop:
            _loop(recipe, method, network, sets, run, machine or Machine(), stop)
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}; mend that and add --resume") from None
    finally:
        run.discard_if_empty()
    return run


def _loop(
    recipe: Recipe,
    method: Method,
    network: nn.Module,
    sets: Sets,
    run: Run,
    machine: Machine,
    stop: Stop,
) -> None:
    fabric = Fabric(accelerator=machine.device, devices=1, precision=recipe.precision)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the faster layout
    wrapped, optimiser = fabric.setup(network, optimiser_of(recipe, network))
    detector, device, augment = Softmax(wrapped), fabric.device, augmentation(recipe)
    batches = Batches(sets.in_set, sets.out_set, recipe.batch_size, recipe.seed)
    per_epoch, total = batches.per_epoch, recipe.epochs * batches.per_epoch
    kappa_at = Ramp(recipe.kappa, recipe.kappa_start, recipe.kappa_ramp)
    eps_at = Ramp(recipe.eps, recipe.eps_start, recipe.eps_ramp)
    lr_at = learning_rate(recipe)

    rows: list[dict[str, float]] = []
    tally, watch, first = Tally(device), Watch(sets.in_set.classes), 0
    if (state := run.read_state(device)) is not None:
        network.load_state_dict(state["network"])
        optimiser.load_state_dict(state["optimiser"])
        tally, watch = (
            Tally(device, state["sums"], state["seconds"]),
            Watch(sets.in_set.classes, state["uniform_epochs"]),
        )
        rows, first = state["rows"], state["step"]

    def checkpoint(step: int) -> None:
        weights, moments = network.state_dict(), optimiser.state_dict()
        counted = {"sums": tally.sums, "seconds": tally.seconds(), "uniform_epochs": watch.uniform_epochs}
        run.write_state({"step": step, "network": weights, "optimiser": moments, "rows": rows, **counted})

    run.write_log(rows)
    board = SummaryWriter(str(run.folder / "tensorboard"), purge_step=first)
    loader = DataLoader(batches, batch_size=None, sampler=range(first, total), num_workers=machine.workers)
    saved = time.monotonic()
    with Progress(recipe.epochs, per_epoch, first) as progress:
        for step, images, labels, out_images in loader:
            epoch, number = divmod(step, per_epoch)
            now = epoch if recipe.ramps == "epoch" else step / per_epoch
            kappa, eps = (kappa_at(now), eps_at(now)) if method.uses_out else (0.0, 0.0)
            for group in optimiser.param_groups:
                group["lr"] = lr_at(now)

            labels = labels.to(device)
            x = augment(images.to(device), generator(recipe.seed, "augment in", step, device=device))
            x_out = augment(out_images.to(device), generator(recipe.seed, "augment out", step, device=device))
            if step == 0:
                write_sheet(run.folder / "batch.png", [("in-distribution", x), ("out-distribution", x_out)])

            torch.manual_seed(seed_for(recipe.seed, "network", step))  # for layers that draw, such as dropout
            try:
                loss_in, log_probs = method.in_loss(detector, x, labels)  # [N], [N, K]
                loss_out = method.out_loss(detector, x_out, eps) if kappa > 0 else loss_in.new_zeros(1)  # [M]
            except NoGuarantee:
                raise TrainingFailed(DIVERGED.format(epoch=now, loss="NaN")) from None
            loss = loss_in.mean() + kappa * loss_out.mean()
            optimiser.zero_grad()
            fabric.backward(loss)
            if recipe.clip_gradient:
                fabric.clip_gradients(wrapped, optimiser, max_norm=recipe.clip_gradient)
            optimiser.step()

            tally.step(loss, loss_in, loss_out, log_probs, labels)
            done = step + 1
            if number % max(1, per_epoch // LOOKS) == 0 or done % per_epoch == 0:
                if method.uses_out:
                    tally.look(*out_confidence(detector, x_out, eps))
                watch.diverged(now, tally.means())
            progress.step(done, kappa, eps, tally)
            if done % per_epoch == 0:
                settings = {"epoch": epoch, "seconds": tally.seconds(), "lr": lr_at(now), "kappa": kappa, "eps": eps}
                means = tally.means()
                rows.append(settings | means)
                run.write_log(rows)
                for name, value in rows[-1].items():
                    board.add_scalar(name, value, done)
                progress.epoch(rows[-1])
                if warning := watch.collapsed(epoch, done, means, last=done == total):
                    progress.say(warning)
                tally = Tally(device)
            if stop.requested or time.monotonic() - saved >= 60 * machine.checkpoint_minutes:
                checkpoint(done)
                saved = time.monotonic()
            if stop.requested:
                raise KeyboardInterrupt
    board.close()
    if isinstance(method, GOOD) and eps > 0:
        write_sheet(run.folder / "quantile.png", quantile_split(method, detector, x_out, eps))
    accuracy = test_accuracy(detector, sets.test_set, device)
    run.finish(
        network.state_dict(), sets.in_set.class_names, card(recipe, sets, rows, accuracy, digest(network.state_dict()))
    )


@torch.no_grad()
def out_confidence(detector: Detector, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Confidence of out-images, and its guaranteed upper bound over their boxes.  # [M], [M]"""
    confidence = detector.score(x).sigmoid()
    return confidence, detector.score_upper(Box.around(x, eps)).sigmoid() if eps > 0 else confidence


@torch.no_grad()
def quantile_split(method: GOOD, detector: Softmax, x: Tensor, eps: float) -> list[tuple[str, Tensor]]:
    """An out-batch as the quantile loss divides it, hardest first (the paper's example batches)."""
    order = method.bounds(detector, x, eps).argsort(descending=True)
    clean = len(x) - method.guaranteed_count(len(x))
    return [
        (f"the {clean} highest bounds: trained at the image itself", x[order[:clean]]),
        (f"the {len(x) - clean} lowest bounds: guaranteed at eps {eps:g}", x[order[clean:]]),
    ]


@torch.no_grad()
def test_accuracy(detector: Detector, test_set: ImageSet | None, device: torch.device) -> float | None:
    if test_set is None:
        return None
    correct = 0
    for start in range(0, len(test_set), 500):
        indices = np.arange(start, min(start + 500, len(test_set)))
        x = torch.from_numpy(test_set.images(indices)).to(device) / 255
        correct += int((detector.log_probs(x).argmax(1).cpu().numpy() == test_set.labels(indices)).sum())
    return correct / len(test_set)
