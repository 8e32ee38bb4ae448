"""What one epoch adds up to: the row of log.csv, and whether training still makes sense."""

import math
import time
from collections.abc import Mapping
from typing import final

import torch
from lightning_fabric import Fabric
from torch import Tensor

from certood.errors import TrainingFailed
from certood.machine import total
from certood.objective import Losses

SUMS = (
    *("samples", "loss", "loss_in", "correct", "confidence_in", "out_samples", "loss_out"),
    *("looks", "confidence_out", "bound_out"),
)
PATIENCE = 3  # epochs in a row with the uniform answer before training is given up
DIVERGED = (
    "diverged in epoch {epoch:.1f}: the loss is {loss}. "
    "Lower --lr, set --clip-gradient 1, or raise --kappa-ramp and --eps-ramp"
)
SETTLED = 200  # steps before which an answer near the uniform one may be only the beginning: no more than a warning


@final
class Tally:
    """Sums stay on the device, so that counting does not wait for it; they are part of a checkpoint."""

    def __init__(self, fabric: Fabric, sums: Tensor | None = None, seconds: float = 0.0) -> None:
        self.fabric, self.began = fabric, time.monotonic() - seconds
        self.sums = torch.zeros(len(SUMS), dtype=torch.float64, device=fabric.device)
        if sums is not None and fabric.is_global_zero:  # they are those of all processes
            self.sums += sums

    def step(self, losses: Losses, kappa: float, labels: Tensor, weight: float) -> None:
        """What this process saw of a batch of N in- and M out-images, `weight` N / M: out-losses count for N images."""
        top, predicted = losses.log_probs.max(1)
        loss = loss_in = losses.loss_in.sum()
        if losses.loss_out is not None:
            loss_out = losses.loss_out.sum() * weight
            loss = loss_in + kappa * loss_out
            self._add("loss_out", loss_out)
            self._add("out_samples", torch.tensor(len(losses.loss_out) * weight))
        self._add("samples", torch.tensor(float(len(labels))))
        self._add("loss", loss)
        self._add("loss_in", loss_in)
        self._add("correct", (predicted == labels).sum())
        self._add("confidence_in", top.exp().sum())

    def look(self, confidence: Tensor, bound: Tensor) -> None:
        """A look at out-images, or at one's own share of them: their confidences and guaranteed bounds."""
        self._add("looks", torch.tensor(float(len(bound))))
        self._add("confidence_out", confidence.sum())
        self._add("bound_out", bound.sum())

    def seconds(self) -> float:
        """Since the epoch began, pauses between runs left out."""
        return time.monotonic() - self.began

    def totals(self) -> Tensor:
        return total(self.fabric, self.sums)

    def means(self, everywhere: bool = True) -> dict[str, float]:
        sums = dict(zip(SUMS, (self.totals() if everywhere else self.sums).tolist(), strict=True))
        samples, looks = max(sums["samples"], 1.0), sums["looks"] or math.nan
        means = {name: sums[name] / samples for name in ("loss", "loss_in", "confidence_in")}
        means["loss_out"] = sums["loss_out"] / (sums["out_samples"] or math.nan)
        means |= {name: sums[name] / looks for name in ("confidence_out", "bound_out")}
        return means | {"accuracy": sums["correct"] / samples}

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[SUMS.index(name)] += value


@final
class Watch:
    """Stops a training that has diverged, or that gives every image the uniform answer and will not recover."""

    def __init__(self, classes: int, uniform_epochs: int = 0) -> None:
        self.classes, self.uniform_epochs = classes, uniform_epochs

    def diverged(self, epoch: float, means: Mapping[str, float]) -> None:
        if not math.isfinite(means["loss"]) or math.isinf(means["bound_out"]):
            raise TrainingFailed(DIVERGED.format(epoch=epoch, loss=means["loss"]))

    def collapsed(self, epoch: int, steps: int, means: Mapping[str, float], last: bool) -> str | None:
        """After an epoch: a warning while it may recover, an error when it will not."""
        chance = 1 / self.classes
        uniform = means["confidence_in"] < 1.2 * chance and means["accuracy"] < chance + 0.1 * (1 - chance)
        settled = steps >= SETTLED
        self.uniform_epochs = self.uniform_epochs + 1 if uniform and settled else 0
        if not uniform or not (settled or last):
            return None
        finding = (
            f"collapsed to the uniform answer: accuracy {means['accuracy']:.1%}, mean confidence "
            f"{means['confidence_in']:.1%} after epoch {epoch + 1}. "
            "Raise --kappa-ramp and --eps-ramp, or lower --kappa, --quantile or --lr"
        )
        if self.uniform_epochs >= PATIENCE or (last and settled):
            raise TrainingFailed(finding)
        return finding
