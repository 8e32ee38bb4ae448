"""A guarantee for float32 is refused where something computes with fewer bits, or in a way that nobody knows."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from certood import Box
from certood.bounds import full_precision, plain_sums, score_upper
from certood.bounds.precision import refuse_reduced_precision, sums_are_plain
from certood.errors import PrecisionError

CPU = torch.device("cpu")


def bound() -> None:
    score_upper(nn.Linear(3, 2), Box(torch.zeros(1, 3), torch.ones(1, 3)), sound=True)


def test_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(PrecisionError, match="autocast computes with"):
            bound()
        with full_precision(CPU):
            bound()


@pytest.mark.parametrize("variable", ["ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"])
def test_fewer_bits_by_a_variable(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "BF16")
    with pytest.raises(PrecisionError, match=f"{variable} is 'bf16'"):
        bound()
    monkeypatch.setenv(variable, "STRICT")
    bound()


SETTINGS = {
    "torch.set_float32_matmul_precision('medium')": "is 'medium'",
    "torch.backends.mkldnn.conv.fp32_precision = 'bf16'": "conv.fp32_precision is 'bf16'",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'": "contradict each other",
    "torch.backends.fp32_precision = 'tf32'": "contradict each other",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_fewer_bits_by_a_setting_of_torch(setting: str) -> None:
    """In a process of its own: torch does not always let a setting be taken back."""
    code = f"import torch, warnings; warnings.simplefilter('ignore'); {setting}; import test_bounds_precision as t\n"
    code += "from certood.errors import PrecisionError\ntry: t.bound()\nexcept PrecisionError as e: print(e)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert SETTINGS[setting] in found.stdout, found.stderr


def test_a_device_that_nobody_knows() -> None:
    with pytest.raises(PrecisionError, match="how mps computes is not known"):
        refuse_reduced_precision(torch.device("mps"))


def test_sums_are_plain_inside_and_settings_come_back() -> None:
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # then NNPACK may convolve, by FFT or Winograd's method
    try:
        available = torch.backends.nnpack.is_available() and torch._C._get_nnpack_enabled()
        assert sums_are_plain(CPU) == (not available)
        with plain_sums(CPU):
            assert sums_are_plain(CPU)
        assert sums_are_plain(CPU) == (not available)
    finally:
        torch._C._set_mkldnn_enabled(before)
