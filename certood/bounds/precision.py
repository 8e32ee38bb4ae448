"""Arithmetic that a bound may rely on: float32 as it is, on every device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast (8 or 11 bits) and no TF32 (11 bits), which CUDA convolutions use unless they are told not to.

    A bound must be computed like this, and so must the scores that it is compared with.
    """
    with torch.autocast(device.type, enabled=False):
        if device.type != "cuda":
            yield
            return
        convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
        before = convolutions.allow_tf32, products.allow_tf32
        convolutions.allow_tf32 = products.allow_tf32 = False
        try:
            yield
        finally:
            convolutions.allow_tf32, products.allow_tf32 = before
