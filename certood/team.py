"""Processes that work together: what they tell each other, and that all end when one is gone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch.distributed
from lightning_fabric import Fabric

from certood.errors import CertoodError, LostProcess

Value = TypeVar("Value")


@final
@dataclass(frozen=True)
class Team:
    """One process alone, or those of a Fabric: the first reads and writes files, all compute."""

    fabric: Fabric | None = None

    @property
    def size(self) -> int:
        return self.fabric.world_size if self.fabric else 1

    @property
    def number(self) -> int:
        return self.fabric.global_rank if self.fabric else 0

    @property
    def first(self) -> bool:
        return self.number == 0

    def told(self, value: Value) -> Value:
        """What the first has, for all."""
        return self.fabric.broadcast(value) if self.fabric and self.size > 1 else value

    def collected(self, value: Value) -> list[Value]:
        """What each has, for the first; nothing for the others."""
        if self.size == 1:
            return [value]
        everyone: list[Any] = [None] * self.size
        torch.distributed.gather_object(value, everyone if self.first else None)
        return everyone if self.first else []


ALONE = Team()


@contextmanager
def together(fabric: Fabric) -> Iterator[None]:
    """If one process fails, all end, and the first says why: what another posted, or that another is gone."""
    try:
        yield
    except CertoodError as error:
        if not fabric.is_global_zero:
            with suppress(Exception):  # the first may be gone already, with an error of its own
                _board().set(POSTED, f"process {fabric.global_rank}: {error}")
        raise
    except RuntimeError as error:
        if fabric.world_size == 1 or not _is_lost(error):
            raise
        time.sleep(0.5)  # whoever failed may be about to say why
        said = GONE
        with suppress(Exception):
            if fabric.is_global_zero and _board().check([POSTED]):
                said = _board().get(POSTED).decode()
        raise LostProcess(said) from None


POSTED = "certood failed"
GONE = "one of the processes that work together is gone: killed, out of memory, or its machine is down"


def _board() -> Any:
    """Where processes leave each other notes: torch.distributed's own store, at the first process."""
    return torch.distributed.distributed_c10d._get_default_store()


def _is_lost(error: RuntimeError) -> bool:
    """What Gloo and NCCL say where a peer does not answer any more."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error).lower()
