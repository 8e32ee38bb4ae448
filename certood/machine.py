"""Where a run is executed: device, processes, precision. Lightning Fabric does the work; processes share each batch."""

import ctypes
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, cast, final

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor

from certood.errors import RecipeError, RunError
from certood.recipes import Recipe

Precision = Literal["32-true", "bf16-mixed", "16-mixed"]


@final
@dataclass(frozen=True)
class Machine:
    """Nothing here is part of what a run computes, so nothing here is part of its recipe."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int = 0
    checkpoint_minutes: float = 10.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        if min(self.devices, self.nodes, self.accumulate) < 1 or self.workers < 0 or not self.checkpoint_minutes >= 0:
            raise RunError(
                f"devices, nodes and accumulate are at least 1, workers and checkpoint minutes at least 0, not "
                f"{self.devices}, {self.nodes}, {self.accumulate}, {self.workers}, {self.checkpoint_minutes}"
            )

    @property
    def processes(self) -> int:
        return self.devices * self.nodes


def device_of(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Where a single process computes."""
    here = torch.cuda.is_available()
    if name == "cuda" and not here:
        raise RunError("no CUDA device is here; leave --device out, or take cpu")
    return torch.device("cuda" if here and name != "cpu" else "cpu")


def launch(machine: Machine, recipe: Recipe) -> Fabric:
    """The processes of a training."""
    shares = machine.processes * machine.accumulate
    if recipe.batch_size % shares:
        parts = f" in {machine.accumulate} parts each" if machine.accumulate > 1 else ""
        raise RecipeError(f"{machine.processes} processes cannot share batches of {recipe.batch_size} evenly{parts}")
    if recipe.precision == "16-mixed" and device_of(machine.device).type == "cpu":  # Fabric would take bf16-mixed
        raise RecipeError("precision 16-mixed needs a GPU; on a CPU take 32-true or bf16-mixed")
    return launched(machine, recipe.precision)


def launched(machine: Machine, precision: Precision = "32-true") -> Fabric:
    _check_starter(machine)
    if machine.devices == 1:
        device_of(machine.device)
    if machine.device == "cuda" and machine.devices > torch.cuda.device_count():
        raise RunError(f"{machine.devices} CUDA devices were asked for, {torch.cuda.device_count()} are here")
    # Fabric says unasked that a GPU could compute with 11 bits, and of several processes that they found each other.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    # Who is alone has no use for a cluster, about whose settings Fabric might complain.
    alone = LightningEnvironment() if machine.processes == 1 else None
    with _settings_that_fit(RuntimeError, ValueError):
        fabric = Fabric(
            accelerator=machine.device, devices=machine.devices, num_nodes=machine.nodes, precision=precision,
            plugins=alone,
        )  # fmt: skip
    with _settings_that_fit(ValueError):
        fabric.launch()
    hold_memory()
    return fabric


@contextmanager
def _settings_that_fit(*errors: type[Exception]) -> Iterator[None]:
    """Fabric's words for settings of SLURM that contradict ours, or each other."""
    try:
        yield
    except errors as error:
        raise RunError(f"no processes can be started: {' '.join(str(error).split())}") from None


def _check_starter(machine: Machine) -> None:
    """Fabric would believe whoever started the processes, or each of them would train the run by itself."""
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        starter, number, here = "torchrun", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
    elif machine.processes == 1 and "SLURM_STEP_NUM_TASKS" not in os.environ:
        return  # in a job of SLURM, but not started by srun: how many tasks the job may have does not matter
    elif os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return  # a shell inside of a job, in which Fabric starts processes itself
    else:
        starter, number, here = "SLURM", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"
    started = int(os.environ.get(number, machine.processes))
    if started != machine.processes:
        devices = int(os.environ.get(here, started))
        raise RunError(
            f"{starter} started {started} process{'es' if started > 1 else ''}, --devices {machine.devices} --nodes "
            f"{machine.nodes} says {machine.processes}: add --devices {devices} --nodes {max(1, started // devices)}"
        )


HEAP, TRIM = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
MOST = 2**31 - 1  # bytes; the largest number that mallopt takes


def hold_memory() -> None:
    """Tell glibc to keep what a step frees, up to 2 GB: the next step asks for the same.

    Otherwise every large tensor is mapped and handed back, and a training step spends a part of its time in page faults
    (benchmarks/RESULTS.md). Other C libraries have no such switch, and it changes no number.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(HEAP, MOST)
        library.mallopt(TRIM, MOST)


@final
@dataclass(frozen=True)
class Shares:
    """A batch is dealt out like cards, to `parts` rounds of all processes: sample i goes to share i mod (parts P).

    So every share has samples of everywhere in the batch, and shares differ by one sample at most.
    """

    fabric: Fabric
    parts: int = 1

    def own(self, part: int) -> slice:
        return slice(part * self.fabric.world_size + self.fabric.global_rank, None, self.parts * self.fabric.world_size)

    def whole(self, own: Tensor) -> Tensor:
        """Numbers for one's own samples, part after part, to those of the whole batch, in its order."""
        if self.parts * self.fabric.world_size == 1:
            return own
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # Fabric's own call of an older function
            everywhere = cast(Tensor, self.fabric.all_gather(own))  # [P, parts * m], [m] for one process
        return everywhere.reshape(self.fabric.world_size, self.parts, -1).permute(2, 1, 0).flatten()


def agreed(fabric: Fabric, wanted: bool) -> bool:
    """True for all processes as soon as one wants it."""
    if fabric.world_size == 1:
        return wanted
    return bool(total(fabric, torch.tensor(float(wanted), device=fabric.device)) > 0)


def total(fabric: Fabric, own: Tensor) -> Tensor:
    """The sum over all processes, which must ask together."""
    return own if fabric.world_size == 1 else cast(Tensor, fabric.all_reduce(own.clone(), reduce_op="sum"))
