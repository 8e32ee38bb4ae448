"""What processes share and agree on."""

import platform
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from lightning_fabric import Fabric

from certood.errors import RecipeError, RunError
from certood.machine import Machine, Shares, agreed, launch, launched, total
from certood.recipes import recipe


@pytest.mark.parametrize(
    "wrong", [{"devices": 0}, {"nodes": -1}, {"workers": -1}, {"accumulate": 0}, {"checkpoint_minutes": float("nan")}]
)
def test_numbers_that_no_machine_has(wrong: dict[str, float]) -> None:
    with pytest.raises(RunError, match="at least"):
        Machine(**wrong)


def test_alone_everything_is_ones_own() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    own = torch.tensor([1.0, 2.0])
    assert torch.equal(Shares(fabric).whole(own), own)
    assert Shares(fabric).own(0) == slice(0, None, 1)
    assert torch.equal(total(fabric, own), own)
    assert (agreed(fabric, True), agreed(fabric, False)) == (True, False)


@dataclass
class OneOf:
    """What `Shares` asks of Fabric, as process `global_rank` of `world_size` that all hold the same numbers."""

    world_size: int
    global_rank: int
    everywhere: torch.Tensor | None = None

    def all_gather(self, own: torch.Tensor) -> torch.Tensor:
        assert self.everywhere is not None
        return self.everywhere if self.world_size > 1 else own


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_shares_make_up_the_batch_and_come_back_in_its_order(processes: int, parts: int) -> None:
    batch = torch.rand(processes * parts * 3)
    shares = [Shares(OneOf(processes, rank), parts) for rank in range(processes)]  # type: ignore[arg-type]
    dealt = torch.cat([batch[share.own(part)] for share in shares for part in range(parts)])
    assert torch.equal(dealt.sort().values, batch.sort().values)
    held = [torch.cat([batch[share.own(part)] for part in range(parts)]) for share in shares]
    for rank, own in enumerate(held):
        gathered = Shares(OneOf(processes, rank, torch.stack(held)), parts)  # type: ignore[arg-type]
        assert torch.equal(gathered.whole(own), batch)


def test_parts_and_processes_divide_a_batch() -> None:
    with pytest.raises(RecipeError, match=r"1 processes cannot share batches of 64 evenly in 3 parts each"):
        launch(Machine(accumulate=3), recipe("demo"))


TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}
SLURM = {"SLURM_JOB_NAME": "train", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}


@pytest.mark.parametrize(
    ("environment", "machine", "said"),
    [
        (
            {**TORCHRUN, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, Machine("cpu"),
            "torchrun started 2 processes, --devices 1 --nodes 1 says 1: add --devices 2 --nodes 1",
        ),
        (
            {**TORCHRUN, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, Machine("cpu", devices=8),
            "torchrun started 16 processes, --devices 8 --nodes 1 says 8: add --devices 8 --nodes 2",
        ),
        (
            {**SLURM, "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}, Machine("cpu"),
            "SLURM started 4 processes, --devices 1 --nodes 1 says 1: add --devices 2 --nodes 2",
        ),
        (
            {**SLURM, "SLURM_NTASKS": "1"}, Machine("cpu", devices=2),
            "SLURM started 1 process, --devices 2 --nodes 1 says 2: add --devices 1 --nodes 1",
        ),
        (
            {**SLURM, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}, Machine("cpu", devices=2),
            "no processes can be started: You set `--ntasks=2`",
        ),
        (
            {**SLURM, "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS_PER_NODE": "4"},
            Machine("cpu", devices=2, nodes=2),
            "no processes can be started: You set `devices=2`",
        ),
    ],
)  # fmt: skip
def test_who_started_the_processes_must_agree(
    environment: dict[str, str], machine: Machine, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match=re.escape(said)):
        launched(machine)


@pytest.mark.parametrize(
    "environment",
    [
        {**TORCHRUN, "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"},
        {**SLURM, "SLURM_NTASKS": "4"},  # in a script of sbatch
        {**SLURM, "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4"},
        {**SLURM, "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"},
        {**SLURM, "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_NAME": "bash"},
        {"WORLD_SIZE": "2"},  # left by somebody else
    ],
)
def test_one_process_alone_starts_anywhere(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launched(Machine("cpu")).world_size == 1


FAULTS = """
import resource, sys, torch
from certood.machine import hold_memory
if sys.argv[1] == "held":
    hold_memory()
torch.set_num_threads(1)
for _ in range(3):  # until the block has its place
    torch.ones(12_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(12_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_memory_that_a_step_frees_is_there_for_the_next() -> None:
    faults = {}
    for way in ("held", "as it comes"):
        run = subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True, check=True)
        faults[way] = int(run.stdout)
    assert faults["held"] < 0.1 * faults["as it comes"]
