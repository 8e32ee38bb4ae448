"""The batches of a training, read here or ahead by processes of their own, and in plain words how reading may end."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.data import DataLoader

from certood.data.stream import Batch, Batches
from certood.errors import CertoodError, LostFile, LostProcess
from certood.files import reason

ENDED = "a process that reads images ended: killed, or out of memory (fewer --workers take less)"
UNREAD = "images cannot be read ({})"
# What is said of a reader that is gone by the pipes and sockets that led to it.
CUT = (ConnectionError, EOFError, FileNotFoundError)


def read_ahead(batches: Batches, steps: range, workers: int) -> Iterator[Batch]:
    """With no workers they are read here, each when it is asked for."""
    loader = DataLoader(batches, batch_size=None, sampler=steps, num_workers=workers)
    try:
        with _told_when_asked():
            found = iter(loader)
        yield from found
    except (CertoodError, OSError, EOFError, RuntimeError) as error:
        text = str(error)
        if text.startswith("Caught "):  # torch hands on what a reader raised with its traceback; the words come last
            said = text.strip().splitlines()[-1].partition(": ")[2]
            if isinstance(error, CertoodError):
                raise type(error)(said) from None
            if isinstance(error, OSError):
                raise LostFile(UNREAD.format(said)) from None
            raise
        if workers and (isinstance(error, CUT) or text.startswith("DataLoader worker")):
            raise LostProcess(ENDED) from None
        if isinstance(error, OSError):
            raise LostFile(UNREAD.format(reason(error))) from None
        raise


@contextmanager
def _told_when_asked() -> Iterator[None]:
    """A loader that starts here says that a reader is gone when it is asked for a batch. Torch would raise it at once,
    by a signal, wherever the training is just then: in the middle of a checkpoint, which then seemed to fail."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if main and sys.platform != "win32" else None
    yield
    if before is not None:  # torch's own, where a loader was used before in this process
        of_torch = str(getattr(before, "__module__", "")).startswith("torch.")
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if of_torch else before)
