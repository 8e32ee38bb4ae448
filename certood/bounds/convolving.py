"""A 2-D convolution in float64 as products of matrices: sums of products and nothing else, on every device.

Torch convolves float64 one image at a time, several times slower than this; and cuDNN may do it by FFT.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NUMBERS_AT_ONCE = {"cpu": 2**16, "cuda": 2**25}  # of unfolded images: what a cache holds, and enough for many cores


def convolve2d(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """F.conv2d without groups or dilation; channels last in memory.  # [N, C, H, W] -> [N, K, H', W']"""
    count, channels, height, width = x.shape
    classes, _, tall, wide = weight.shape
    down, right = (height + 2 * padding[0] - tall) // stride[0] + 1, (width + 2 * padding[1] - wide) // stride[1] + 1
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, padding[1], padding[1], padding[0], padding[0])).contiguous()
    matrix = weight.permute(2, 3, 1, 0).reshape(-1, classes)  # [tall wide C, K]
    out = x.new_empty(count, down, right, classes)
    across = padded.stride()
    steps = (across[0], across[1] * stride[0], across[2] * stride[1], across[1], across[2], across[3])
    together = max(1, NUMBERS_AT_ONCE.get(x.device.type, 2**16) // max(1, down * right * len(matrix)))
    for start in range(0, count, together):
        part = padded[start : start + together]
        windows = part.as_strided((len(part), down, right, tall, wide, channels), steps, part.storage_offset())
        unfolded = windows.reshape(len(part) * down * right, -1)
        target = out[start : start + together].view(len(unfolded), classes)
        if bias is None:
            torch.mm(unfolded, matrix, out=target)
        else:
            torch.addmm(bias, unfolded, matrix, out=target)
    return out.permute(0, 3, 1, 2)
