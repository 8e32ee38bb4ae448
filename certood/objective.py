"""One optimisation step. Clean and interval passes go through one wrapped forward, so that gradients are reduced once
however many passes a method takes, and a batch is taken in as many parts as its memory asks for."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, final

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from certood.data.order import seed_for
from certood.detectors import Softmax
from certood.errors import RecipeError
from certood.machine import Shares
from certood.methods import GOOD, Method
from certood.normalisation import BatchNorms
from certood.recipes import Recipe


class Losses(NamedTuple):
    """Of one's own share of a batch."""

    loss_in: Tensor  # [N]
    log_probs: Tensor  # [N, K]
    loss_out: Tensor | None  # [M]

    def detached(self) -> "Losses":
        loss_out = None if self.loss_out is None else self.loss_out.detach()
        return Losses(self.loss_in.detach(), self.log_probs.detach(), loss_out)


class Answers(nn.Module):
    """The network in the precision of the training; all else, bounds too, is computed in full."""

    def __init__(self, network: nn.Module, autocast: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self.network, self.autocast, self.norms = network, autocast, BatchNorms(network)
        self.known: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Any) -> Any:
        for images, logits in self.known:
            if x is images:
                return logits
        with self.autocast(), self.norms.frozen():
            out = self.network(x)
        return out.float() if isinstance(out, Tensor) and out.dtype != torch.float64 else out

    def pass_together(self, *batches: Tensor) -> None:
        """The clean pass of a network with batch norm, whose statistics are those of all batches."""
        with self.autocast(), self.norms.measuring():
            logits = self.network(torch.cat(batches)).float()
        self.known = list(zip(batches, logits.split([len(batch) for batch in batches]), strict=True))


@final
class Objective(nn.Module):
    """What is minimised, as a module: what Fabric wraps is called once a share."""

    def __init__(
        self, network: nn.Module, method: Method, autocast: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__()
        self.answers, self.method = Answers(network, autocast), method

    def forward(self, x: Tensor, labels: Tensor, x_out: Tensor, kappa: float, eps: float) -> Losses:
        with torch.autocast(x.device.type, enabled=False):
            detector = Softmax(self.answers)
            if kappa > 0 and not self.answers.norms:
                return Losses(*self.method.losses(detector, x, labels, x_out, eps))
            if self.answers.norms:
                self.answers.pass_together(x, x_out)
            loss_in, log_probs = self.method.in_loss(detector, x, labels)
            loss_out = self.method.out_loss(detector, x_out, eps) if kappa > 0 else None
            self.answers.known = []
            return Losses(loss_in, log_probs, loss_out)

    @torch.no_grad()
    def bounds(self, method: GOOD, x_out: Tensor, eps: float) -> Tensor:
        with torch.autocast(x_out.device.type, enabled=False):
            return method.bounds(Softmax(self.answers), x_out, eps)  # [M]


@final
class Step:
    """`step(...)` changes the weights and says what each part of one's own share of the batch lost."""

    def __init__(
        self, fabric: Fabric, recipe: Recipe, method: Method, network: nn.Module, optimiser: Any, parts: int
    ) -> None:
        self.fabric, self.recipe, self.method, self.shares = fabric, recipe, method, Shares(fabric, parts)
        if BatchNorms(network) and parts * fabric.world_size > 1:
            raise RecipeError(
                "batch norm takes its statistics from the whole batch, so this network is trained by one process and "
                "without --accumulate"
            )
        self.objective = Objective(network, method, fabric.autocast)
        self.wrapped, self.optimiser = fabric.setup(self.objective, optimiser)

    def __call__(
        self, step: int, x: Tensor, labels: Tensor, x_out: Tensor, kappa: float, eps: float
    ) -> list[tuple[Losses, Tensor]]:
        """x, labels and x_out are those of the whole batch; the losses come with the labels they belong to."""
        torch.manual_seed(seed_for(self.recipe.seed, "network", step))  # for layers that draw, such as dropout
        methods = self._methods(x_out, kappa, eps)
        done = []
        self.optimiser.zero_grad()
        for part, method in enumerate(methods):
            own, last = self.shares.own(part), part == len(methods) - 1
            self.objective.method = method
            with self.fabric.no_backward_sync(self.wrapped, enabled=not last):
                losses = self.wrapped(x[own], labels[own], x_out[own], kappa, eps)
                loss = losses.loss_in.sum() / len(x)
                if losses.loss_out is not None:
                    loss = loss + kappa * losses.loss_out.sum() / len(x_out)
                self.fabric.backward(loss * self.fabric.world_size)  # whose gradients are averaged over the processes
            done.append((losses.detached(), labels[own]))
        if self.recipe.clip_gradient:
            self.fabric.clip_gradients(self.wrapped, self.optimiser, max_norm=self.recipe.clip_gradient)
        self.optimiser.step()
        return done

    def own_out(self, x_out: Tensor) -> list[Tensor]:
        """One's own out-images, part by part."""
        return [x_out[self.shares.own(part)] for part in range(self.shares.parts)]

    def _methods(self, x_out: Tensor, kappa: float, eps: float) -> list[Method]:
        """One for each part. GOOD's quantile is that of the whole batch, so all parts are bounded before any pays."""
        method, shares = self.method, self.shares
        if not isinstance(method, GOOD):
            return [method] * shares.parts
        if shares.parts == 1:
            return [replace(method, gather=lambda own: (shares.whole(own), shares.own(0)))]
        if kappa == 0 or eps == 0 or not 0 < method.quantile < 1:  # no bound decides anything
            return [method] * shares.parts
        bounds = torch.cat([self.objective.bounds(method, part, eps) for part in self.own_out(x_out)])
        everywhere = shares.whole(bounds)
        return [replace(method, gather=_known(everywhere, shares.own(part))) for part in range(shares.parts)]


def _known(everywhere: Tensor, own: slice) -> Callable[[Tensor], tuple[Tensor, slice]]:
    return lambda bounds: (everywhere, own)
