"""From a recipe to the parts that it names."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from certood import networks
from certood.building import network_of
from certood.data.augment import Augmentation
from certood.data.order import Order, seed_for
from certood.data.sources import ImageSet, load, whereabouts_of
from certood.data.stream import generator
from certood.detectors import Detector
from certood.discriminators import Discriminated
from certood.errors import DataError, MissingSplit
from certood.methods import ACET, GOOD, METHODS, Discriminator, Method
from certood.mixtures import JointDensity, fit
from certood.recipes import Recipe
from certood.runs import Trained, load_weights
from certood.schedules import Cosine, Schedule, Steps


def method_of(recipe: Recipe) -> Method:
    kind = METHODS[recipe.method]
    if kind is GOOD:
        return GOOD(recipe.quantile)
    return ACET(recipe.attack_steps) if kind is ACET else kind()


SIDES = ("inside", "outside")  # the classes of a discriminator
FITTED = 20_000  # images of each side that CCU's mixtures are fitted on before training


class Sets(NamedTuple):
    in_set: ImageSet
    out_set: ImageSet | None  # None for a method that does not look at one
    test_set: ImageSet | None  # of the in-distribution; None where there is none


def image_sets(recipe: Recipe, folder: Path | None) -> Sets:
    of = partial(load, folder=folder, channels=recipe.channels, size=recipe.size)
    in_set = of(recipe.in_set, "train", limit=recipe.in_limit or None)
    if in_set.classes < 2:
        raise DataError(f"{recipe.in_set} has no labels to learn; an in-distribution set needs two classes or more")
    out_set, method = None, method_of(recipe)
    if method.uses_out:
        out_set = of(
            recipe.out_set,
            "train",
            margin=recipe.out_margin,
            limit=recipe.out_limit or None,
            to_train_against=True,
            without=recipe.out_without,
        )
    test_set = _test_set(recipe, folder, in_set, of)
    if isinstance(method, Discriminator):
        return Sets(in_set.as_class(0, SIDES), out_set, test_set and test_set.as_class(0, SIDES))
    return Sets(in_set, out_set, test_set)


def refuse_missing(recipes: Iterable[Recipe], folder: Path | None) -> None:
    """Open every set that is going to be trained on: what is not there should be found out now, not hours later."""
    for recipe in {(each.in_set, each.out_set, method_of(each).uses_out): each for each in recipes}.values():
        image_sets(replace(recipe, in_limit=2, out_limit=2), folder)


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


def initial_network(recipe: Recipe, sets: Sets, fitted: bool = True) -> nn.Module:
    """Before its first step; a ProoD run's discriminator is trained later, by itself. Not `fitted`: a checkpoint will
    take the place of all weights, so that CCU's mixtures, which take a minute to fit, need not be."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(recipe.seed, "weights"))
        network = network_of(recipe, sets.in_set.classes)
        if recipe.weights == "ibp":
            networks.draw_for_bounds(network)
    if recipe.start_from:
        load_weights(_classifier(network), Path(recipe.start_from))
    if isinstance(network, JointDensity) and sets.out_set is not None and fitted:
        sides = (("in", sets.in_set), ("out", sets.out_set))
        inside, outside = (_examples(recipe, images, side) for side, images in sides)
        fit(network, inside, outside, generator(recipe.seed, "mixtures"))
    return network


def _classifier(network: nn.Module) -> nn.Module:
    """What other runs have too, and a run can start from."""
    return network.classifier if isinstance(network, JointDensity | Discriminated) else network


def _examples(recipe: Recipe, images: ImageSet, side: str) -> Tensor:
    """Augmented as in training.  # [N, C, H, W]"""
    rows = Order(len(images), recipe.seed, side).indices(0, FITTED)  # a small set more than once, each time augmented
    augment, draw = augmentation(recipe), generator(recipe.seed, f"mixtures {side}")
    parts = (images.images(part) for part in np.array_split(rows, FITTED // 500))
    return torch.cat([augment(torch.from_numpy(part), draw) for part in parts])


def detector_of(trained: Trained, device: torch.device) -> Detector:
    """What a trained run answers with, its bounds sound: whoever attacks, evaluates or reports knows no more of it."""
    network = trained.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return method_of(trained.recipe).detector(network.requires_grad_(False), sound=True)


def optimiser_of(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """A group's `share` is its part of the learning rate that the schedule gives."""
    classifier = [weight for weight in _classifier(network).parameters() if weight.requires_grad]
    groups: list[dict[str, Any]] = [{"params": classifier, "share": 1.0}]
    if isinstance(network, JointDensity):
        mixtures = [*network.inside.parameters(), *network.outside.parameters()]
        groups.append({"params": mixtures, "share": recipe.mixture_lr / recipe.lr, "weight_decay": 0.0})
    optimiser: torch.optim.Optimizer
    fused = recipe.precision != "16-mixed"  # one pass over the weights; there it would unscale the gradients itself
    decay = recipe.weight_decay
    if recipe.optimiser == "sgd":
        optimiser = torch.optim.SGD(groups, recipe.lr, momentum=0.9, nesterov=True, weight_decay=decay, fused=fused)
    else:
        optimiser = torch.optim.Adam(groups, recipe.lr, eps=recipe.adam_eps, weight_decay=decay, fused=fused)
    if isinstance(network, JointDensity):
        optimiser.register_step_post_hook(lambda *_: network.keep_apart())
    return optimiser


def learning_rate(recipe: Recipe) -> Schedule:
    if recipe.lr_schedule == "steps":
        return Steps(recipe.lr, recipe.lr_milestones)
    return Cosine(recipe.lr, recipe.epochs, recipe.lr_warmup)


def augmentation(recipe: Recipe) -> Augmentation:
    """The same for in- and out-images, as in the paper."""
    return Augmentation(recipe.size, recipe.crop_padding, recipe.flip, recipe.autoaugment)
