"""Out-distributions that are drawn, not collected: float32 in [0, 1], image i a pure function of (seed, i).

Counter-based generators (Philox keyed by seed and index) make an image independent of what was asked for before and
of the batch it is asked for in.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from certood.data.formats import Indices

Floats = npt.NDArray[np.float32]
SEEDS = {"train": 1_000_003, "test": 2_000_003}  # arbitrary, fixed: train and test never share an image


def generator(seed: int, index: int) -> np.random.Generator:
    """The stream of random numbers that belongs to image `index`."""
    return np.random.Generator(np.random.Philox(key=[seed, index]))


def _uniform(random: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    return random.random(shape, np.float32)


def _smooth(random: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    """Hein et al. 2019, as the paper quotes it: filter a uniform image, stretch it to [0, 1]."""
    from scipy.ndimage import gaussian_filter

    sigma = random.uniform(1.0, 2.5)
    image = gaussian_filter(random.random(shape, np.float32), (0, sigma, sigma))
    image -= image.min()
    return np.asarray(image / max(image.max(), np.finfo(np.float32).tiny), np.float32)


def _single_colour(random: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    return np.broadcast_to(random.random((shape[0], 1, 1), np.float32), shape)


DRAW: dict[str, Callable[[np.random.Generator, tuple[int, int, int]], Floats]] = {
    "uniform_noise": _uniform,
    "smooth_noise": _smooth,
    "single_colours": _single_colour,
}


def drawing(name: str, split: str, shape: tuple[int, int, int]) -> tuple[Callable[[Indices], Floats], str]:
    """How to draw images of a noise set by index, and the digest of that rule."""
    draw, seed = DRAW[name], SEEDS[split]

    def images(indices: Indices) -> Floats:
        batch = np.empty((len(indices), *shape), np.float32)
        for position, index in enumerate(indices):
            batch[position] = draw(generator(seed, int(index)), shape)
        return batch

    return images, hashlib.sha256(f"{name} {seed} {shape}".encode()).hexdigest()


def permute_pixels(images: npt.NDArray[Any], indices: Indices, split: str) -> npt.NDArray[Any]:
    """Shuffle the pixels of each image [n, C, H, W] by a permutation of its own; channels stay together."""
    count, channels, height, width = images.shape
    flat = images.reshape(count, channels, height * width)
    orders = [generator(SEEDS[split], int(index)).permutation(height * width) for index in indices]
    shuffled = [image[:, order] for image, order in zip(flat, orders, strict=True)]
    return np.stack(shuffled).reshape(images.shape) if count else images
