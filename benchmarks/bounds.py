"""How much does a guarantee cost? Time of the certified bound over time of the plain forward pass, on L, batch 128.

An interval pass does two convolutions a layer, so 2.0 is the least it can be. The baselines are timed in the same
process, interleaved with what they are compared to; medians. Run it on a quiet machine:

    python benchmarks/bounds.py [--network L] [--batch 128] [--repeats 15]
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certood import networks
from certood.bounds import Box, confidence_upper, max_gap
from certood.detectors import Softmax
from certood.methods import GOOD


def four_convolutions(network: nn.Sequential, x: Tensor, eps: float) -> Tensor:
    """The paper's formulas as they stand: W+ and W- applied to both ends. The baseline for centre and radius."""
    lower, upper = x - eps, x + eps
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            apply: Callable[..., Tensor] = F.linear
            more: dict[str, object] = {}
            if isinstance(layer, nn.Conv2d):
                apply, more = F.conv2d, {"stride": layer.stride, "padding": layer.padding}
            lower, upper = (
                apply(lower, plus, layer.bias, **more) + apply(upper, minus, None, **more),
                apply(upper, plus, layer.bias, **more) + apply(lower, minus, None, **more),
            )
        else:
            lower, upper = layer(lower), layer(upper)
    return upper.amax(1) - lower.amin(1)


def medians(subjects: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of each, taken in turns so that all see the same machine."""
    for subject in subjects.values():
        subject()
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(repeats):
        for name, subject in subjects.items():
            start = time.perf_counter()
            subject()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="L", choices=networks.ARCHITECTURES)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    channels, size = (3, 32) if arguments.network == "XL" else (1, 28)
    network = networks.build(arguments.network, channels, size, 10)
    network = network.to(memory_format=torch.channels_last)
    detector = Softmax(network)
    x, x_out = (torch.rand(arguments.batch, channels, size, size) for _ in range(2))
    labels = torch.randint(10, (arguments.batch,))

    def no_grad(function: Callable[[], object]) -> Callable[[], object]:
        return torch.no_grad()(function)

    def step(loss: Callable[[], Tensor]) -> Callable[[], object]:
        def run() -> None:
            network.zero_grad()
            loss().backward()

        return run

    def in_loss() -> Tensor:
        return GOOD().in_loss(detector, x, labels)[0].mean()

    seconds = medians(
        {
            "plain forward": no_grad(lambda: network(x)),
            "certify (eq. 6)": no_grad(lambda: confidence_upper(network, Box.around(x, 0.1))),
            "max_gap (eq. 7)": no_grad(lambda: max_gap(network, Box.around(x, 0.1))),
            "four convolutions": no_grad(lambda: four_convolutions(network, x, 0.1)),
        },
        arguments.repeats,
    ) | medians(
        {
            "plain step": step(in_loss),
            "GOOD_100 step": step(lambda: in_loss() + GOOD().out_loss(detector, x_out, 0.1).mean()),
            "four-convolution step": step(
                lambda: in_loss() + torch.log1p(four_convolutions(network, x_out, 0.1).square() / 2).mean()
            ),
        },
        max(3, arguments.repeats // 3),
    )
    print(f"{arguments.network}, batch {arguments.batch}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for name, baseline in (
        *(("certify (eq. 6)", "plain forward"), ("max_gap (eq. 7)", "plain forward")),
        *(
            ("four convolutions", "plain forward"),
            ("GOOD_100 step", "plain step"),
            ("four-convolution step", "plain step"),
        ),
        ("four-convolution step", "GOOD_100 step"),
    ):
        ratio = seconds[name] / seconds[baseline]
        print(f"{name:>22} / {baseline:<14} {ratio:5.2f}    {seconds[name]:.4f} s / {seconds[baseline]:.4f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")


if __name__ == "__main__":
    main()
