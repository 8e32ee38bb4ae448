"""Reading files of a size that was checked, and writing them so that a kill or a full disk leaves the old file or the
new one, never half of one."""

import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from certood.errors import RunError

LARGEST_TEXT = 16 << 20  # bytes; a recipe has 700, the record of an evaluation of a hundred sets 100,000


def write(path: Path, save: Callable[[Path], object]) -> None:
    """Let `save` write a file beside `path`, force it to the disk, then move it into place."""
    beside = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}.part"
    try:
        if path.exists() and not path.is_file():  # a folder, or a device, whose place the file would take
            raise OSError(errno.EINVAL, "that is no regular file", str(path))
        save(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_folder(path.parent)
    except Exception as error:  # safetensors and torch.save report a full disk as errors of their own
        raise RunError(f"cannot write {path}: {reason(error)}") from None
    finally:
        with suppress(OSError):  # there may be no such folder, or no name of that length
            beside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """The name of a file is the folder's content, and reaches the disk with it. Not every system can be asked to."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES):
            raise
    finally:
        os.close(handle)


def reason(error: Exception) -> str:
    """Why a write failed, and what to do."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or any(sign in str(error) for sign in ("No space left", "Disk quota exceeded", "unexpected pos")):
        return "the disk is full; free some space"
    if getattr(error, "errno", None) == errno.EFBIG:
        return "files may not become that large here (ulimit -f)"
    return getattr(error, "strerror", None) or str(error)


def write_text(path: Path, text: str) -> None:
    write(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def read_text(path: Path) -> str:
    """OSError where it cannot be read, ValueError where it is no text or absurdly large."""
    if path.exists() and not path.is_file():  # a pipe would wait for ever
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"it is larger than {LARGEST_TEXT >> 20} MB")
    return content.decode("utf-8")


def read_json(path: Path) -> Any:
    """OSError where it cannot be read, ValueError where it is no JSON."""
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
