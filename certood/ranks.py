"""Which of several processes this is, before they know each other. No torch in here."""

import os

PARENT = os.getppid()


def leads() -> bool:
    """Is this the first, as torchrun, SLURM or Fabric number them?"""
    return _number() in (None, "0")


def speaks() -> bool:
    """One process says what went wrong: the first, or, where that was killed and so left its children, the second."""
    return leads() or (_number() == "1" and os.getppid() != PARENT)


def _number() -> str | None:
    numbers = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((number for number in numbers if number is not None), None)
