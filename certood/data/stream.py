"""Batches by optimisation step, and the generators that go with a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certood.data.adapting import readable
from certood.data.order import BlockOrder, Blocks, Order, seed_for


class Images(Protocol):
    """What a stream needs of an image set."""

    @property
    def blocks(self) -> Blocks | None: ...
    def __len__(self) -> int: ...
    def images(self, indices: NDArray[np.int64]) -> NDArray[np.generic]: ...
    def labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]: ...


def generator(seed: int, name: str, *position: int, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_for(seed, name, *position))


class Batch(NamedTuple):
    step: int
    images: Tensor  # in-distribution, as stored or augmented  # [N, C, H, W]
    labels: Tensor  # [N]
    out_images: Tensor  # out-distribution, likewise; empty for a method without  # [M, C, H, W]
    corrupt: tuple[int, ...]  # out-images that could not be read, and for which others stand


def order_of(images: Images, seed: int, name: str) -> Order | BlockOrder:
    return Order(len(images), seed, name) if images.blocks is None else BlockOrder(images.blocks, seed, name)


@final
@dataclass(frozen=True)
class Batches(torch.utils.data.Dataset[Batch]):
    """Batch by optimisation step. The last in-batch of an epoch is what is left; the out-batch is always full."""

    in_set: Images
    out_set: Images | None
    size: int
    seed: int
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    """done here where it is given, so that processes that read ahead do it as well"""

    @property
    def per_epoch(self) -> int:
        return -(-len(self.in_set) // self.size)

    def __getitem__(self, step: int) -> Batch:
        epoch, number = divmod(step, self.per_epoch)
        total, first = len(self.in_set), number * self.size
        here = order_of(self.in_set, self.seed, "in").indices(epoch * total + first, min(self.size, total - first))
        images, labels = self.in_set.images(here), self.in_set.labels(here)
        out_images, corrupt = torch.empty(0, *images.shape[1:]), tuple[int, ...]()
        if self.out_set is not None:
            there = order_of(self.out_set, self.seed, "out").indices(step * self.size, self.size)
            pixels, corrupt = readable(self.out_set.images, there, len(self.out_set), self.out_set.blocks)
            out_images = torch.from_numpy(pixels)
        in_images = torch.from_numpy(images)
        if self.augment is not None:
            in_images = self.augment(in_images, generator(self.seed, "augment in", step))
            out_images = self.augment(out_images, generator(self.seed, "augment out", step))
        return Batch(step, in_images, torch.from_numpy(labels), out_images, corrupt)
