"""Augmentation: per sample, reproducible, inside [0, 1]."""

import pytest
import torch

from certood.data.augment import Augmentation, random_crop, sub_policies
from certood.data.stream import generator


def numbered(samples: int, size: int) -> torch.Tensor:
    """Every pixel tells its row and column, all above 0, so that padding shows."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return (1 + rows * size + columns).float().expand(samples, 1, size, size) / (size * size + 1)


def test_a_crop_is_a_window_of_the_padded_image_and_every_sample_has_its_own() -> None:
    x = numbered(64, 12)
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    crops = random_crop(x, 12, 2, generator(0, "crop"))
    places = set()
    for sample in range(64):
        match = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if torch.equal(crops[sample], padded[sample, :, top : top + 12, left : left + 12])
        ]
        assert len(match) == 1
        places.add(match[0])
    assert len(places) > 15  # of 25 possible


def test_flips_are_per_sample_and_about_half() -> None:
    x = numbered(400, 8)
    flipped = Augmentation(8, flip=True)(x, generator(0, "flip"))
    same = (flipped == x).flatten(1).all(1)
    assert torch.equal(flipped[~same], x[~same].flip(3))
    assert 150 < int(same.sum()) < 250


def test_eight_bit_images_become_unit_range() -> None:
    x = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    assert torch.equal(Augmentation(8)(x, generator(0, "x")), x.float() / 255)


def test_an_empty_batch_stays_empty() -> None:
    assert Augmentation(28, 4)(torch.empty(0, 1, 32, 32), generator(0, "x")).shape == (0, 1, 28, 28)


@pytest.mark.parametrize("policy", ["cifar10", "svhn"])
def test_autoaugment_is_reproducible_per_sample_and_leaves_the_global_generator_alone(policy: str) -> None:
    x = torch.rand(48, 3, 16, 16)
    augment = Augmentation(16, policy=policy)
    before = torch.random.get_rng_state()
    first, second = augment(x, generator(0, "a")), augment(x, generator(0, "a"))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, second)
    assert not torch.equal(first, augment(x, generator(1, "a")))
    assert 0 <= first.min() <= first.max() <= 1
    changed = (first != x).flatten(1).any(1)
    assert 0.5 < changed.float().mean() <= 1
    assert len(sub_policies(policy)) == 25


def test_samples_of_one_batch_meet_different_sub_policies() -> None:
    x = torch.rand(1, 3, 16, 16).expand(40, 3, 16, 16)
    augmented = Augmentation(16, policy="cifar10")(x, generator(0, "a"))
    assert len({image.numpy().tobytes() for image in augmented}) > 10
