"""Augmentation, batched and on the device: flip, random crop, AutoAugment, in the paper's order."""

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor


@final
@dataclass(frozen=True)
class Augmentation:
    """Every sample draws its own flip, its own crop and its own AutoAugment sub-policy."""

    size: int
    padding: int = 0
    flip: bool = False
    policy: str = "none"

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """8-bit or [0, 1] images, at least as large as the crop, to float images in [0, 1].  # [N, C, size, size]"""
        x = images.float() / 255 if images.dtype == torch.uint8 else images
        if len(x) == 0:
            return x.new_empty(0, x.shape[1], self.size, self.size)
        if self.flip:
            mirrored = torch.rand(len(x), generator=generator, device=x.device) < 0.5
            x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
        if self.padding or x.shape[2] != self.size or x.shape[3] != self.size:
            x = random_crop(x, self.size, self.padding, generator)
        if self.policy != "none":
            x = auto_augment(x, self.policy, generator)
        return x


def random_crop(x: Tensor, size: int, padding: int, generator: torch.Generator) -> Tensor:
    """A window of `size` x `size` at a place of its own for each sample, out of the zero-padded image."""
    x = F.pad(x, (padding,) * 4)
    samples, _, height, width = x.shape
    window = torch.arange(size, device=x.device)
    top = torch.randint(height - size + 1, (samples, 1), generator=generator, device=x.device)
    left = torch.randint(width - size + 1, (samples, 1), generator=generator, device=x.device)
    rows, columns = (top + window)[:, :, None], (left + window)[:, None, :]  # [N, size, 1], [N, 1, size]
    sample = torch.arange(samples, device=x.device)[:, None, None]
    return x.permute(0, 2, 3, 1)[sample, rows, columns].permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def auto_augment(x: Tensor, policy: str, generator: torch.Generator) -> Tensor:
    """AutoAugment (Cubuk et al. 2019), a sub-policy a sample; kornia alone would draw one for the whole batch."""
    choices = sub_policies(policy)
    chosen = torch.randint(len(choices), (len(x),), generator=generator, device=x.device)
    seed = int(torch.randint(2**62, (1,), generator=generator, device=x.device))
    result = x.clone()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):  # kornia draws from the global generator
        torch.manual_seed(seed)
        for number in torch.unique(chosen).tolist():
            rows = (chosen == number).nonzero().squeeze(1)
            result[rows] = choices[number](x[rows])
    return result.clamp_(0, 1)


@cache
def sub_policies(policy: str) -> tuple[Any, ...]:
    from kornia.augmentation.auto import AutoAugment  # a heavy import that most runs do without

    return tuple(AutoAugment(policy).children())
