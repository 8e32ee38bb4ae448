"""Writing files so that a kill or a full disk leaves the old file or the new one, never half of one."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from certood.errors import RunError


def write(path: Path, save: Callable[[Path], object]) -> None:
    """Let `save` write a file beside `path`, force it to the disk, then move it into place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except Exception as error:  # safetensors and torch.save report a full disk as errors of their own
        raise RunError(f"cannot write {path}: {reason(error)}") from None
    finally:
        beside.unlink(missing_ok=True)


def reason(error: Exception) -> str:
    """Why a write failed, and what to do."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left" in str(error) or "unexpected pos" in str(error):
        return "the disk is full; free some space"
    return getattr(error, "strerror", None) or str(error)


def write_text(path: Path, text: str) -> None:
    write(path, lambda beside: beside.write_text(text, encoding="utf-8"))
