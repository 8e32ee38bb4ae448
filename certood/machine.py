"""Where a run is executed: device, processes, precision. Lightning Fabric does the work; processes share each batch."""

import os
import warnings
from dataclasses import dataclass
from typing import Literal, cast, final

import torch
from lightning_fabric import Fabric
from torch import Tensor

from certood.errors import RecipeError, RunError
from certood.recipes import Recipe


@final
@dataclass(frozen=True)
class Machine:
    """Nothing here is part of what a run computes, so nothing here is part of its recipe."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int = 0
    checkpoint_minutes: float = 10.0

    def __post_init__(self) -> None:
        if self.devices < 1 or self.nodes < 1 or self.workers < 0 or not self.checkpoint_minutes >= 0:
            raise RunError(
                f"devices and nodes are at least 1, workers and checkpoint minutes at least 0, not {self.devices}, "
                f"{self.nodes}, {self.workers}, {self.checkpoint_minutes}"
            )


def device_of(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Where a single process computes."""
    here = torch.cuda.is_available()
    if name == "cuda" and not here:
        raise RunError("no CUDA device is here; leave --device out, or take cpu")
    return torch.device("cuda" if here and name != "cpu" else "cpu")


def leads() -> bool:
    """Before the processes know each other: is this the first, as torchrun, SLURM or Fabric number them?"""
    numbers = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((number == "0" for number in numbers if number is not None), True)


def launch(machine: Machine, recipe: Recipe) -> Fabric:
    processes = machine.devices * machine.nodes
    if recipe.batch_size % processes:
        raise RecipeError(f"{processes} processes cannot share batches of {recipe.batch_size} evenly")
    if machine.device == "cuda" and machine.devices > torch.cuda.device_count():
        raise RunError(f"{machine.devices} CUDA devices were asked for, {torch.cuda.device_count()} are here")
    if recipe.precision == "16-mixed" and device_of(machine.device).type == "cpu":  # Fabric would take bf16-mixed
        raise RecipeError("precision 16-mixed needs a GPU; on a CPU take 32-true or bf16-mixed")
    fabric = Fabric(
        accelerator=machine.device, devices=machine.devices, num_nodes=machine.nodes, precision=recipe.precision
    )
    fabric.launch()
    return fabric


def gathered(fabric: Fabric, own: Tensor) -> tuple[Tensor, int]:
    """One tensor of all processes, and where one's own part begins."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # Fabric's own call of an older function
        everywhere = cast(Tensor, fabric.all_gather(own))
    return everywhere.flatten(), fabric.global_rank * len(own)


def agreed(fabric: Fabric, wanted: bool) -> bool:
    """True for all processes as soon as one wants it."""
    if fabric.world_size == 1:
        return wanted
    return bool(total(fabric, torch.tensor(float(wanted), device=fabric.device)) > 0)


def total(fabric: Fabric, own: Tensor) -> Tensor:
    """The sum over all processes, which must ask together."""
    return own if fabric.world_size == 1 else cast(Tensor, fabric.all_reduce(own.clone(), reduce_op="sum"))
