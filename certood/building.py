"""From a recipe to its network, with no weights worth keeping: what training begins with, and `Run.load` fills."""

import torch
from torch import nn

from certood import discriminators, networks
from certood.discriminators import Discriminated, NegativeLinear
from certood.mixtures import JointDensity
from certood.normalisation import folded
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


def settled(network: nn.Module) -> nn.Module:
    """The same function as it is used from now on: batch norm folded, and weights that were computed from others are
    numbers, which whoever bounds and whoever executes the network have alike."""
    if isinstance(network, JointDensity | Discriminated):
        network.classifier = folded(network.classifier)
    if isinstance(network, Discriminated):
        network.discriminator = _with_plain_weights(network.discriminator)
        return network
    return network if isinstance(network, JointDensity) else _with_plain_weights(folded(network))


@torch.no_grad()
def _with_plain_weights(network: nn.Module) -> nn.Module:
    for name, layer in network.named_children():
        if isinstance(layer, NegativeLinear):
            plain = nn.Linear(layer.log_weight.shape[1], 1, device="meta")
            plain.weight, plain.bias = nn.Parameter(-layer.log_weight.exp()), layer.bias
            setattr(network, name, plain)
    return network
