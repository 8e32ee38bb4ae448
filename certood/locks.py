"""One process at a time writes to a folder. The lock is the system's own and goes with its process, however it ends."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from certood.errors import Held, RunError

NAME = ".lock"
ATTEMPTS = 100  # to open a lock in a folder that others take away
UNKNOWN = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}  # what file systems say that know no locks


@contextmanager
def locked(folder: Path, doing: str) -> Iterator[None]:
    """Hold the folder, which is made if need be; refuse if another process holds it.

    A record lock rather than flock: processes that are forked here, to read images, do not inherit it, so it cannot
    outlive a process that was killed.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        handle = _made_and_open(folder, doing)
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        (folder / NAME).unlink(missing_ok=True)  # while it is held: whoever has it open sees that it is gone
        os.close(handle)
        for each in made:
            with suppress(OSError):  # something was written into it
                each.rmdir()


def _made_and_open(folder: Path, doing: str) -> int:
    """Whoever made a folder for nothing takes it away again, perhaps after we saw it and before we are in it."""
    for _ in range(ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return _open(folder / NAME, doing)
    folder.mkdir(parents=True, exist_ok=True)
    return _open(folder / NAME, doing)


def _open(path: Path, doing: str) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(handle, path, doing)
            if _same(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _take(handle: int, path: Path, doing: str) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in UNKNOWN:
            return
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise Held(f"another process is {doing} in {path.parent}; wait for it, or choose another folder") from None
        raise


def _same(handle: int, path: Path) -> bool:
    """Is what was opened still what the name stands for? Its last holder took the name away."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
