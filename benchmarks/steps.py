"""What does training a guarantee cost? A GOOD step over a plain step and over what the paper's formulas would take.

One clean pass and one interval pass, forward and backward, is 3 x a plain step: the least in float32.

    python benchmarks/steps.py [--only L]
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from baselines import naive_step, one_function_at_a_time
from measuring import THREADS, Times, compared, interleaved, machine, peak, ratio, record, table, verdict
from torch.profiler import ProfilerActivity, profile

from certood import networks
from certood.assembly import method_of, optimiser_of
from certood.machine import Machine, launch
from certood.objective import Step
from certood.recipes import recipe

EPS, KAPPA = 0.1, 0.3
SIZES = {"L": (1, 28, 128, 60), "XL": (3, 32, 16, 30), "S": (1, 28, 128, 8)}  # channels, pixels, batch, seconds

PAIRS = [
    ("GOOD_100", "plain", "3.1"),
    ("GOOD_80", "GOOD_100", "1"),
    ("GOOD_50", "GOOD_100", "1"),
    ("four convolutions, three passes", "GOOD_100", "2.3 at least"),
    ("four convolutions, two passes", "GOOD_100", ""),
    ("four convolutions, three passes", "GOOD_100, bfloat16", "4 at least"),
    ("four convolutions, two passes", "GOOD_100, bfloat16", ""),
    ("GOOD_100", "GOOD_100, bfloat16", ""),
    ("plain", "plain, bfloat16", ""),
    ("GOOD_100, former rule", "GOOD_100", ""),
]

Call = Callable[[], object]


def steps_of(name: str) -> dict[str, Call]:
    channels, size, batch, _ = SIZES[name]
    torch.manual_seed(1)
    x, x_out = (torch.rand(batch, channels, size, size) for _ in range(2))
    labels = torch.randint(10, (batch,))
    base = replace(
        recipe("mnist"), network=name, channels=channels, size=size, batch_size=batch, lr=1e-6, precision="32-true"
    )

    def network(layout: torch.memory_format) -> torch.nn.Sequential:
        torch.manual_seed(0)
        return networks.build(name, channels, size, 10).to(memory_format=layout)

    def ours(**changes: object) -> Call:
        chosen = replace(base, **changes)  # type: ignore[arg-type]
        own, kappa = network(torch.channels_last), 0.0 if chosen.method == "plain" else KAPPA
        step = Step(launch(Machine(device="cpu"), chosen), chosen, method_of(chosen), own, optimiser_of(chosen, own), 1)
        return lambda: step(0, x, labels, x_out, kappa, EPS)

    def naive(passes: int, layout: torch.memory_format) -> Call:
        own = network(layout)
        step = naive_step(own, optimiser_of(base, own), passes)
        return lambda: step(x, labels, x_out, KAPPA, EPS)

    good = ours()

    def former() -> None:
        with one_function_at_a_time():
            good()

    return {
        "plain": ours(method="plain"),
        "GOOD_100": good,
        "GOOD_80": ours(quantile=0.8),
        "GOOD_50": ours(quantile=0.5),
        "GOOD_100, former rule": former,
        "four convolutions, three passes": naive(3, torch.contiguous_format),
        "four convolutions, two passes": naive(2, torch.channels_last),
        "plain, bfloat16": ours(method="plain", precision="bf16-mixed"),
        "GOOD_100, bfloat16": ours(precision="bf16-mixed"),
    }


GROUPS = {  # names of torch's operations, as its profiler gives them; all others are "the rest"
    "convolutions, backward": ("convolution_backward",),
    "convolutions, forward": ("mkldnn_convolution",),
    "products of matrices": ("mm", "addmm", "addmm_"),
    "ReLU": ("clamp_min", "threshold_backward"),
    "sums and halves": ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "neg"),
    "|W| and its sign": ("abs", "sgn"),
    "copies, casts": ("copy_", "fill_"),
    "optimiser": ("_fused_adam_", "_fused_sgd_"),
}


def profiled(steps: dict[str, Call], names: Iterable[str], times: dict[str, Times]) -> str:
    """Milliseconds of the operations of a step by kind; the profiler slows what is small."""
    columns = {}
    for name in names:
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for _ in range(3):
                steps[name]()
        columns[name] = {
            event.key.removeprefix("aten::"): event.self_cpu_time_total / 3000 for event in seen.key_averages()
        }
    rows = []
    for group, members in GROUPS.items():
        rows.append([group, *(f"{sum(column.get(key, 0) for key in members):.0f}" for column in columns.values())])
    named = {key for members in GROUPS.values() for key in members}
    rows.append([
        "the rest",
        *(f"{sum(spent for key, spent in column.items() if key not in named):.0f}" for column in columns.values()),
    ])  # fmt: skip
    rows.append(["whole step, without the profiler", *(f"{1000 * times[name].median:.0f}" for name in columns)])
    plain, good = ([sum(columns[name].values()), products(columns[name])] for name in ("plain", "GOOD_100"))
    bfloat16 = products(columns["GOOD_100, bfloat16"])
    return (
        f"{table(['L, ms a step', *columns], rows)}\n\n"
        f"What is left, compared with the limit of 3: convolutions and products alone, which libraries compute, are "
        f"{good[1] / plain[1]:.2f} times those of a plain step, and in bfloat16 {bfloat16 / plain[1]:.2f} times. All "
        f"else is {good[0] - good[1]:.0f} ms of a GOOD_100 step ({100 * (1 - good[1] / good[0]):.0f} %), three times "
        f"that of a plain step would be {3 * (plain[0] - plain[1]):.0f} ms."
    )


def products(column: dict[str, float]) -> float:
    groups = ("convolutions, backward", "convolutions, forward", "products of matrices")
    return sum(column.get(key, 0.0) for group in groups for key in GROUPS[group])


def unheld() -> float:
    """Best seconds of what uses nothing of certood, in a process whose freed memory glibc hands back, as it does."""
    torch.manual_seed(0)
    x, x_out, labels = torch.rand(128, 1, 28, 28), torch.rand(128, 1, 28, 28), torch.randint(10, (128,))
    own = networks.build("L", 1, 28, 10)
    optimiser = torch.optim.Adam(own.parameters(), 1e-6)
    step = naive_step(own, optimiser, 3)
    return interleaved({"naive": lambda: step(x, labels, x_out, KAPPA, EPS)}, 1, least=4, most=4)["naive"].best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SIZES)
    parser.add_argument("--unheld", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    only = chosen.only
    torch.set_num_threads(THREADS)
    if chosen.unheld:
        print(unheld())
        return
    about, parts, verdicts = machine(), [], []
    for name, (channels, size, batch, seconds) in SIZES.items():
        if only not in (None, name):
            continue
        steps = steps_of(name)
        times = interleaved(steps, seconds)
        parts.append(f"{name}, {channels}x{size}x{size}, batch {batch} + {batch}\n\n{compared(times, PAIRS)}")
        if name == "L":
            one, three = "GOOD_100", "four convolutions, three passes"
            verdicts = [
                verdict("GOOD_100 step / plain step", ratio(times, one, "plain")[0], 3.1),
                verdict(f"{three} / GOOD_100", ratio(times, three, one)[0], 2.3, at_most=False),
                verdict(f"{three} / GOOD_100 in bfloat16", ratio(times, three, f"{one}, bfloat16")[0], 4, False),
                verdict("GOOD_80 / GOOD_100", ratio(times, "GOOD_80", one)[0], 1),
                verdict("GOOD_50 / GOOD_100", ratio(times, "GOOD_50", one)[0], 1),
            ]
            looked = ("plain", "GOOD_100, former rule", "GOOD_100", "GOOD_100, bfloat16")
            alone = subprocess.run([sys.executable, __file__, "--unheld"], capture_output=True, text=True, check=True)
            seconds = float(alone.stdout)
            parts.append(
                f"The step with four convolutions and three passes in a process of its own, without `hold_memory` and "
                f"with PyTorch's default Adam, as somebody would meet it: {seconds:.3f} s at best, "
                f"{seconds / times[one].best:.2f} times GOOD_100, {seconds / times[f'{one}, bfloat16'].best:.2f} times "
                f"GOOD_100 in bfloat16."
            )
            parts.append(f"Where a step goes, before (former rule) and after:\n\n{profiled(steps, looked, times)}")
        del steps
    legend = (
        "Steps of `certood.objective.Step`, optimiser included (fused Adam for all). Four convolutions: W+ and W- on "
        "both ends as in the paper's formulas; two passes (in-batch, interval) in channels_last; three with the clean "
        "answers on the out-batch as well, contiguous: what the authors' step does. The targets name the latter. "
        "Former rule: GOOD_100 as before `bounds/affine.py`, with today's optimiser and memory."
    )
    record("steps.py", "what training a guarantee costs", [about, "\n".join(verdicts), legend, *parts, peak()])


if __name__ == "__main__":
    main()
