"""The one training loop. Everything random is a function of the seed and the step, so a run that was stopped needs no
more than its weights, its optimiser and its step number to go on bit for bit."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from certood.assembly import Sets, augmentation, image_sets, initial_network, learning_rate, method_of, optimiser_of
from certood.bounds import Box
from certood.card import card
from certood.data.shapes import Shapes
from certood.data.sources import ImageSet
from certood.data.stream import Batches, generator
from certood.detectors import Detector, Softmax
from certood.discriminators import Discriminated
from certood.errors import LostFile, LostProcess, NoGuarantee, RunError, TrainingFailed
from certood.files import reason
from certood.interrupts import Stop, stop_requests
from certood.journal import Journal, Row
from certood.machine import Machine, agreed, launch
from certood.methods import GOOD
from certood.normalisation import at_rest
from certood.objective import Step
from certood.progress import Progress
from certood.ranks import leads
from certood.reading import read_ahead
from certood.recipes import Recipe, discriminator_of
from certood.runs import Run, digest, load_weights
from certood.schedules import Ramp
from certood.tally import DIVERGED, Tally, Watch
from certood.team import together

LOOKS = 5  # about so many times an epoch the out-confidence and its bound are measured


def train(
    recipe: Recipe,
    folder: Path | str,
    data: Path | None = None,
    machine: Machine | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Run:
    """Train `recipe` into a run folder; with `resume`, go on from its last checkpoint if there is one.

    `quiet` leaves out the line that is printed an epoch.
    """
    run, machine = Run(Path(folder)), machine or Machine()
    if leads() and run.prepare(recipe, resume):
        return run
    method_of(recipe)  # what is wrong with it is told before processes are started
    fabric = launch(machine, recipe)
    with together(fabric):
        _run(fabric, recipe, run, data, machine, resume, quiet)
    return run


def _run(
    fabric: Fabric, recipe: Recipe, run: Run, data: Path | None, machine: Machine, resume: bool, quiet: bool
) -> None:
    sets = image_sets(recipe, data)
    network = initial_network(recipe, sets, fitted=not run.state.exists())
    with run.held(recipe, resume) if fabric.is_global_zero else nullcontext(False) as finished:
        if fabric.broadcast(finished):  # by another process, since we looked
            return
        try:
            if fabric.is_global_zero:
                run.create(recipe)
            fabric.barrier()
            if isinstance(network, Discriminated):  # which is a training of its own, in a folder inside this one
                _run(fabric, discriminator_of(recipe), run.first, data, machine, resume=True, quiet=quiet)
                fabric.barrier()  # until its weights are written
                load_weights(network.discriminator, run.first.weights)
                network.fix(recipe.discriminator_shift)
            with stop_requests() as stop, together(fabric):
                _loop(fabric, recipe, network, sets, run, machine, stop, quiet)
        except TrainingFailed:
            raise  # the folder stays: its log tells how it came to that
        except BaseException as error:
            if fabric.is_global_zero:
                run.discard_unless_resumable()
            if isinstance(error, OSError):
                raise RunError(f"{run.folder}: {reason(error)}; mend that and add --resume") from None
            if isinstance(error, (LostProcess, LostFile)):
                raise type(error)(f"{error}; {_left(run)}") from None
            raise


def _left(run: Run) -> str:
    return "the same command with --resume goes on" if run.resumable() else "nothing was saved yet: start again"


def _loop(
    fabric: Fabric,
    recipe: Recipe,
    network: nn.Module,
    sets: Sets,
    run: Run,
    machine: Machine,
    stop: Stop,
    quiet: bool,
) -> None:
    method = method_of(recipe)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the faster layout
    optimise = Step(fabric, recipe, method, network, optimiser_of(recipe, network), machine.accumulate)
    optimiser, device, augment = optimise.optimiser, fabric.device, augmentation(recipe)
    shapes = Shapes(recipe.blobs, recipe.strokes, recipe.pieces)
    measured = method.detector(network)  # without Fabric's wrapper, which would compute bounds in low precision as well
    ahead = device.type == "cpu"  # then whoever reads the images augments them
    batches = Batches(sets.in_set, sets.out_set, recipe.batch_size, recipe.seed, augment if ahead else None)
    per_epoch, total = batches.per_epoch, recipe.epochs * batches.per_epoch
    kappa_at = Ramp(recipe.kappa, recipe.kappa_start, recipe.kappa_ramp)
    eps_at = Ramp(recipe.eps, recipe.eps_start, recipe.eps_ramp)
    lr_at = learning_rate(recipe)

    rows: list[Row] = []
    tally, watch, first = Tally(fabric), Watch(sets.in_set.classes), 0
    digests = [own.digest for own in (sets.in_set, sets.out_set) if own is not None]
    if (state := run.read_state(device)) is not None:
        if state["digests"] != digests:
            raise RunError(f"{run.folder} was begun on other images than those that are here now")
        try:
            network.load_state_dict(state["network"])
            optimiser.load_state_dict(state["optimiser"])
        except Exception as error:  # whatever a checkpoint that somebody changed makes them say
            raise RunError(f"{run.state} does not fit this run ({str(error).splitlines()[0]}); train again") from None
        first, rows, tally = state["step"], state["rows"], Tally(fabric, state["sums"], state["seconds"])
        watch.uniform_epochs = state["uniform_epochs"]

    journal = Journal(run, rows, first, writes=fabric.is_global_zero)
    saved = time.monotonic()
    with Progress(recipe.epochs, per_epoch, first, shown=fabric.is_global_zero) as progress:
        for step, images, labels, out_images, corrupt in read_ahead(batches, range(first, total), machine.workers):
            if corrupt and (warning := journal.skip(corrupt)):
                progress.say(warning)
            epoch, number = divmod(step, per_epoch)
            now = epoch if recipe.ramps == "epoch" else step / per_epoch
            kappa, eps = (kappa_at(now), eps_at(now)) if method.uses_out else (0.0, 0.0)
            for group in optimiser.param_groups:
                group["lr"] = lr_at(now) * group["share"]

            x, x_out = images.to(device), out_images.to(device)
            if not ahead:
                x = augment(x, generator(recipe.seed, "augment in", step, device=device))
                x_out = augment(x_out, generator(recipe.seed, "augment out", step, device=device))
            x_out = shapes(x_out, x, labels.to(device), generator(recipe.seed, "shapes", step, device=device))
            if step == 0:
                journal.sheet("batch.png", [("in-distribution", x), ("out-distribution", x_out)])
            with diverging(now):
                parts = optimise(step, x, labels.to(device), x_out, kappa, eps)
            for losses, own_labels in parts:
                tally.step(losses, kappa, own_labels, len(x) / max(1, len(x_out)))
            done = step + 1
            if number % max(1, per_epoch // LOOKS) == 0 or done % per_epoch == 0:
                if method.uses_out:
                    with diverging(now), at_rest(network):
                        for own_out in optimise.own_out(x_out):
                            tally.look(*out_confidence(measured, own_out, eps))
                watch.diverged(now, tally.means())
            progress.step(done, kappa, eps, tally)
            if done % per_epoch == 0:
                means = tally.means()
                settings = {"epoch": epoch, "seconds": tally.seconds(), "lr": lr_at(now), "kappa": kappa, "eps": eps}
                journal.epoch(settings | means, done)
                if not quiet:
                    progress.epoch(settings | means)
                if warning := watch.collapsed(epoch, done, means, last=done == total):
                    progress.say(warning)
                tally = Tally(fabric)
            due = time.monotonic() - saved >= 60 * machine.checkpoint_minutes
            stopping = agreed(fabric, stop.requested)
            if stopping or agreed(fabric, due):
                state = {"step": done, "digests": digests, "sums": tally.totals(), "seconds": tally.seconds()}
                state |= {"network": network.state_dict(), "optimiser": optimiser.state_dict()}
                journal.checkpoint(state | {"uniform_epochs": watch.uniform_epochs})
                saved = time.monotonic()
            if stopping:
                fabric.barrier()
                raise KeyboardInterrupt

    weights = network.state_dict()
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise TrainingFailed(DIVERGED.format(epoch=recipe.epochs, loss="NaN"))
    if isinstance(method, GOOD) and recipe.eps > 0:
        last = total - 1
        x_out = batches[last].out_images.to(device)
        if not ahead:
            x_out = augment(x_out, generator(recipe.seed, "augment out", last, device=device))
        with diverging(recipe.epochs), at_rest(network):
            journal.sheet("quantile.png", quantile_split(GOOD(method.quantile), Softmax(network), x_out, recipe.eps))
    accuracy = test_accuracy(network, sets.test_set, device)
    text = card(recipe, sets, journal.rows, accuracy, digest(weights), journal.skipped)
    journal.finish(weights, sets.in_set.class_names, text)


@contextmanager
def diverging(epoch: float) -> Iterator[None]:
    """A bound that is NaN means that the weights are."""
    try:
        yield
    except NoGuarantee:
        raise TrainingFailed(DIVERGED.format(epoch=epoch, loss="NaN")) from None


@torch.no_grad()
def out_confidence(detector: Detector, x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Confidence of out-images, and its guaranteed upper bound over their boxes.  # [M], [M]"""
    confidence = detector.score(x).sigmoid()
    return confidence, detector.score_upper(Box.around(x, eps)).sigmoid() if eps > 0 else confidence


@torch.no_grad()
def quantile_split(method: GOOD, detector: Softmax, x: Tensor, eps: float) -> list[tuple[str, Tensor]]:
    """An out-batch as the quantile loss divides it, hardest first (the paper's example batches)."""
    bounds = method.bounds(detector, x, eps)
    guaranteed = int(method.guaranteed(bounds).sum())
    order = bounds.argsort(descending=True)
    clean = len(x) - guaranteed
    return [
        (f"the {clean} highest bounds: trained at the image itself", x[order[:clean]]),
        (f"the {guaranteed} lowest bounds: guaranteed at eps {eps:g}", x[order[clean:]]),
    ]


@torch.no_grad()
def test_accuracy(network: nn.Module, test_set: ImageSet | None, device: torch.device) -> float | None:
    if test_set is None:
        return None
    correct = 0
    network.eval()
    for start in range(0, len(test_set), 500):
        indices = np.arange(start, min(start + 500, len(test_set)))
        x = torch.from_numpy(test_set.images(indices)).to(device) / 255
        correct += int((network(x).argmax(1).cpu().numpy() == test_set.labels(indices)).sum())
    return correct / len(test_set)
