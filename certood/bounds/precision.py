"""Arithmetic that a bound may rely on: float32 as it is, on every device; and what a guarantee does not cover."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from certood.errors import PrecisionError


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


@contextmanager
def plain_sums(device: torch.device) -> Iterator[None]:
    """`full_precision`, and no library that may convolve by Winograd's method or FFT (cuDNN, NNPACK).

    What a network answers inside is what a sound bound holds for, on every device: sums of products, in any order.
    """
    with ExitStack() as off:
        off.enter_context(full_precision(device))
        if device.type == "cuda":
            off.enter_context(torch.backends.cudnn.flags(enabled=False, allow_tf32=False))
        elif _nnpack():
            off.enter_context(torch.backends.nnpack.flags(enabled=False))
        yield


def sums_are_plain(device: torch.device) -> bool:
    """Are float32 convolutions on this device sums of products, as it is set up now?"""
    if device.type == "cuda":
        return not torch.backends.cudnn.enabled
    return not _nnpack()


def _nnpack() -> bool:
    """Does torch hand float32 convolutions to NNPACK? Only where there is no oneDNN, which it tells to sum directly."""
    oneDNN = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled  # type: ignore[no-untyped-call]
    return not oneDNN and torch.backends.nnpack.is_available() and torch._C._get_nnpack_enabled()  # type: ignore


def refuse_reduced_precision(device: torch.device) -> None:
    """A guarantee for float32 says nothing about a network that is executed with fewer bits: notice, and say so."""
    found = _reduced(device)
    if found:
        raise PrecisionError(
            f"a sound bound holds for float32, and {found}; turn that off, or compute bound and scores inside "
            f"certood.bounds.full_precision(device)"
        )


# "none" is torch's word for: as the library wants, which for the CPU is float32.
_FULL = ("none", "ieee", "highest", "strict", "")


def _reduced(device: torch.device) -> str:
    if device.type not in ("cpu", "cuda"):
        return f"how {device.type} computes is not known (it is for cpu and cuda)"
    if torch.is_autocast_enabled(device.type):
        return "autocast computes with 8 or 11 bits"
    try:
        return _reduced_on_cuda() if device.type == "cuda" else _reduced_on_cpu()
    except RuntimeError:  # torch's, where its older and newer settings contradict each other
        return "torch's settings of precision contradict each other (torch.backends.fp32_precision is set?)"


def _reduced_on_cuda() -> str:
    if torch.backends.cudnn.enabled and torch.backends.cudnn.allow_tf32:
        return "torch.backends.cudnn.allow_tf32 is on: convolutions are computed with 11 bits"
    if torch.backends.cuda.matmul.allow_tf32:
        return "torch.backends.cuda.matmul.allow_tf32 is on: products are computed with 11 bits"
    emulated = [name for name, value in os.environ.items() if name.startswith("CUBLAS_EMULATE") and value != "0"]
    return f"{emulated[0]} is set: products are emulated with 8 bits" if emulated else ""


def _reduced_on_cpu() -> str:
    settings: dict[str, Any] = {"torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision()}
    for part in ("matmul", "conv"):
        where = getattr(torch.backends.mkldnn, part, None)
        settings[f"torch.backends.mkldnn.{part}.fp32_precision"] = getattr(where, "fp32_precision", "none")
    for variable in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"):
        settings[variable] = os.environ.get(variable, "").lower()
    return next((f"{name} is {value!r}" for name, value in settings.items() if str(value) not in _FULL), "")
