"""What a training costs on one and on eight GPUs: counted operations and bytes, times rates. Prints a table.

    python benchmarks/scale.py

Counted, by running one GOOD_100 step of each network here: operations of all convolutions and products (PyTorch's
counter), bytes that the backward pass waits for, weights. Measured on an H200: the first two rates below, and the time
of a step of the small network S, which is nearly all overhead. All else is an assumption, and is called one.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from certood import networks
from certood.bounds import Box, max_gap

MATMUL = 788e12  # FLOP/s, measured: a large product in bfloat16 on an H200
COPY = 4.3e12  # bytes/s, measured: device to device on an H200
STEP_OF_S = 11e-3  # s, measured: a GOOD_100 step of S, batch 128, on an H200 (5.2 s an epoch of 469 steps)
LAYERS_OF_S = 6  # convolutions and linear layers

REACHED = 0.3  # assumption: share of the rate of a large product that small convolutions reach
TF32 = 0.5  # assumption: float32 training, whose convolutions run in TF32, at half the rate of bfloat16
TOUCHED = 6  # assumption: how often a byte that backward needs crosses the memory bus in a step
LINK = 450e9  # assumption: bytes/s and direction, NVLink between the eight GPUs of a machine
LINK_REACHED = 0.6  # assumption: share of it that an all-reduce reaches
H100 = 3.35 / 4.8  # data sheets: memory of an H100 against an H200; the compute units are the same
GPUS = (1, 8)


@final
@dataclass(frozen=True)
class Training:
    name: str
    network: str
    channels: int
    size: int
    classes: int
    images: int
    epochs: int
    batch: int  # in-images a step, and as many out-images


TRAININGS = (
    Training("MNIST, L", "L", 1, 28, 10, 60_000, 420, 128),
    Training("CIFAR-10, XL", "XL", 3, 32, 10, 50_000, 900, 128),
    Training("CIFAR-10, XL, batch 1,024", "XL", 3, 32, 10, 50_000, 900, 1024),
    Training("ImageNet-32, ResNet-18 twice as wide", "R18x2", 3, 32, 1000, 1_281_167, 90, 1024),
)


@final
@dataclass(frozen=True)
class Counted:
    flops: float  # of a step, for an in-image and an out-image
    kept: float  # bytes for the same
    weights: int
    layers: int


def counted(training: Training) -> Counted:
    torch.manual_seed(0)
    network = networks.build(training.network, training.channels, training.size, training.classes).eval()
    (flops, few), (_, many) = (one_step(network, training, samples) for samples in (1, 3))
    layers = sum(isinstance(module, torch.nn.Conv2d | torch.nn.Linear) for module in network.modules())
    return Counted(flops, (many - few) / 2, sum(weight.numel() for weight in network.parameters()), layers)


def one_step(network: torch.nn.Module, training: Training, samples: int) -> tuple[float, float]:
    """Operations, and bytes that are kept for the backward pass."""
    x = torch.rand(samples, training.channels, training.size, training.size)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = cross_entropy(network(x), torch.zeros(samples, dtype=torch.long))
            loss = loss + max_gap(network, Box.around(x, 1e-6, cut=False)).log1p().mean()
        loss.backward()
    return counter.get_total_flops(), sum(kept.values())


def seconds(training: Training, cost: Counted, gpus: int, rate: float, copy: float) -> dict[str, float]:
    """Parts of a step on one of so many GPUs that share the batch."""
    own = training.batch / gpus
    compute = own * cost.flops / (rate * REACHED)
    memory = TOUCHED * (own * cost.kept + 4 * 4 * cost.weights) / copy  # Adam: weight, gradient, two moments
    reduced = 2 * (gpus - 1) / gpus * 4 * cost.weights
    return {
        "overhead": STEP_OF_S * cost.layers / LAYERS_OF_S,
        "work": max(compute, memory),
        "reduce": reduced / (LINK * LINK_REACHED),
        "bytes": reduced,
    }


def table() -> str:
    lines = [
        "| training | FLOP | GB a GPU | GPUs | ms: overhead + work + all-reduce | hours H200 (H100) | MB reduced |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for training in TRAININGS:
        cost = counted(training)
        steps = training.epochs * -(-training.images // training.batch)
        for gpus in GPUS:
            parts = seconds(training, cost, gpus, MATMUL * TF32, COPY)
            hours = [
                steps * sum(part for name, part in found.items() if name != "bytes") / 3600
                for found in (parts, seconds(training, cost, gpus, MATMUL * TF32, COPY * H100))
            ]
            total = training.epochs * training.images * cost.flops
            memory = (training.batch / gpus * cost.kept + 4 * 4 * cost.weights) / 1e9
            lines.append(
                f"| {training.name} | {total:.1e} | {memory:.1f} | {gpus} | {1e3 * parts['overhead']:.1f} + "
                f"{1e3 * parts['work']:.1f} + {1e3 * parts['reduce']:.1f} | {hours[0]:.1f} ({hours[1]:.1f}) | "
                f"{parts['bytes'] / 1e6:.0f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
