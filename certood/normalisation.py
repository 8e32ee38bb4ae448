"""Batch norm, which has a bound only where its statistics are fixed: in training they are those of the clean pass over
in- and out-images together, frozen for every other pass of the step; a finished network has them folded away.

Frozen statistics are numbers: no gradient goes through them, while it does in the clean pass itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast, final

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval


@contextmanager
def at_rest(network: nn.Module) -> Iterator[None]:
    """In evaluation mode, where every answer depends on its image alone."""
    before = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@final
class BatchNorms:
    """Those of a network in training mode, and what they measured in the last clean pass."""

    def __init__(self, network: nn.Module) -> None:
        self.found = [module for module in network.modules() if isinstance(module, _BatchNorm)]
        self.statistics: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self.found)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        hooks = [module.register_forward_pre_hook(self._measure) for module in self.found]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _measure(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        others = [0, *range(2, inputs[0].ndim)]
        variance, mean = torch.var_mean(inputs[0].detach().float(), dim=others, correction=0)  # [C], [C]
        self.statistics[module] = mean, variance

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """With the statistics of the last clean pass in place of the batch's own."""
        before = [(module.running_mean, module.running_var, module.training) for module in self.found]
        for module in self.found:
            module.running_mean, module.running_var = self.statistics[module]
            module.training = False
        try:
            yield
        finally:
            for module, (mean, variance, training) in zip(self.found, before, strict=True):
                module.running_mean, module.running_var, module.training = mean, variance, training


def folded(network: nn.Module) -> nn.Module:
    """The same function in evaluation mode, each batch norm part of the convolution before it: fewer roundings, and
    bounds that see one affine map where there were two. Batch norm that follows something else stays."""
    if not BatchNorms(network):
        return network
    traced = fx.symbolic_trace(network.eval())
    modules: dict[str, nn.Module] = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        norm = _called(node, modules)
        before = node.args[0] if isinstance(norm, _BatchNorm) else None
        if not isinstance(before, fx.Node) or len(before.users) > 1:
            continue
        source = _called(before, modules)
        if not isinstance(source, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            continue
        _replace(traced, str(before.target), fuse_conv_bn_eval(source, cast(_BatchNorm, norm)))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced


def _called(node: fx.Node, modules: dict[str, nn.Module]) -> nn.Module | None:
    return modules.get(str(node.target)) if node.op == "call_module" else None


def _replace(network: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(network.get_submodule(parent), own, module)
