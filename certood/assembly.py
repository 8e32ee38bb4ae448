"""From a recipe to the parts that it names."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from certood import networks
from certood.data.augment import Augmentation
from certood.data.order import seed_for
from certood.data.sources import ImageSet, load, whereabouts_of
from certood.detectors import Detector, Softmax
from certood.errors import DataError, MissingSplit
from certood.methods import ACET, GOOD, METHODS, Method
from certood.recipes import Recipe
from certood.runs import Trained, load_weights
from certood.schedules import Cosine, Schedule, Steps


def method_of(recipe: Recipe) -> Method:
    kind = METHODS[recipe.method]
    if kind is GOOD:
        return GOOD(recipe.quantile)
    return ACET(recipe.attack_steps) if kind is ACET else kind()


class Sets(NamedTuple):
    in_set: ImageSet
    out_set: ImageSet | None  # None for a method that does not look at one
    test_set: ImageSet | None  # of the in-distribution; None where there is none


def image_sets(recipe: Recipe, folder: Path | None) -> Sets:
    of = partial(load, folder=folder, channels=recipe.channels, size=recipe.size)
    in_set = of(recipe.in_set, "train", limit=recipe.in_limit or None)
    if in_set.classes < 2:
        raise DataError(f"{recipe.in_set} has no labels to learn; an in-distribution set needs two classes or more")
    out_set = None
    if method_of(recipe).uses_out:
        out_set = of(recipe.out_set, "train", margin=recipe.out_margin, limit=recipe.out_limit or None)
    return Sets(in_set, out_set, _test_set(recipe, folder, in_set, of))


def _test_set(recipe: Recipe, folder: Path | None, in_set: ImageSet, of: Callable[..., ImageSet]) -> ImageSet | None:
    """The test split, unless there is none or it is the training images again."""
    places = [whereabouts_of(recipe.in_set, split, folder) for split in ("train", "test")]
    if places[0] is not None and places[0] == places[1]:
        return None
    try:
        test_set = of(recipe.in_set, "test")
    except MissingSplit:
        return None
    if test_set.class_names != in_set.class_names:
        only = set(test_set.class_names) ^ set(in_set.class_names)
        raise DataError(f"train and test split of {recipe.in_set} have different classes: {', '.join(sorted(only))}")
    return test_set


def initial_network(recipe: Recipe, classes: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(recipe.seed, "weights"))
        network = networks.build(recipe.network, recipe.channels, recipe.size, classes)
    if recipe.start_from:
        load_weights(network, Path(recipe.start_from))
    return network


def detector_of(trained: Trained, device: torch.device) -> Detector:
    """What a trained run answers with, its bounds sound: whoever attacks, evaluates or reports knows no more of it."""
    network = trained.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Softmax(network.requires_grad_(False), sound=True)


def optimiser_of(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            network.parameters(), recipe.lr, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
        )
    return torch.optim.Adam(network.parameters(), recipe.lr, eps=recipe.adam_eps, weight_decay=recipe.weight_decay)


def learning_rate(recipe: Recipe) -> Schedule:
    if recipe.lr_schedule == "steps":
        return Steps(recipe.lr, recipe.lr_milestones)
    return Cosine(recipe.lr, recipe.epochs, recipe.lr_warmup)


def augmentation(recipe: Recipe) -> Augmentation:
    """The same for in- and out-images, as in the paper."""
    return Augmentation(recipe.size, recipe.crop_padding, recipe.flip, recipe.autoaugment)
