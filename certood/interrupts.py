"""Ctrl-C and a scheduler's SIGTERM end a run between two steps, after a checkpoint; a second one ends it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final


@final
class Stop:
    """Whether somebody asked the run to end."""

    requested = False


@contextmanager
def stop_requests() -> Iterator[Stop]:
    stop = Stop()

    def request(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
