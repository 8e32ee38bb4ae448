"""From a recipe to its network, with no weights worth keeping: what training begins with, and `Run.load` fills."""

from torch import nn

from certood import discriminators, networks
from certood.discriminators import Discriminated
from certood.mixtures import JointDensity
from certood.settings import Recipe


def network_of(recipe: Recipe, classes: int) -> nn.Module:
    """Answers with logits [N, classes]; a discriminator's classes are inside and outside."""
    channels, size = recipe.channels, recipe.size
    if recipe.method == "discriminator":
        return discriminators.build(recipe.network, channels, size)
    network = networks.build(recipe.network, channels, size, classes)
    if recipe.method == "ccu":
        return JointDensity(network, recipe.components, channels * size * size, classes)
    if recipe.method == "prood":
        return Discriminated(network, discriminators.build(recipe.discriminator, channels, size), classes)
    return network
