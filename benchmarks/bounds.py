"""How much does a guarantee cost? Certified bounds over the plain forward pass: sizes, batches, classes, widths.

An interval pass does two convolutions a layer, so 2.0 is the least it can be.

    python benchmarks/bounds.py
"""

import shutil
import subprocess
import sys
from collections.abc import Callable

import torch
from baselines import four_convolutions, naive_gap, one_function_at_a_time
from measuring import THREADS, Times, compared, interleaved, machine, peak, ratio, record, table, verdict
from torch import nn

from certood import networks
from certood.bounds import Box, confidence_upper, max_gap
from certood.machine import hold_memory

EPS = 0.1
SIZES = {
    "L": (1, 28, 128, 25),
    "XL": (3, 32, 32, 20),
    "M": (1, 28, 128, 6),
    "S": (1, 28, 128, 4),
    "XS": (1, 28, 128, 3),
}

HEAD = """
import sys, time, torch
from pathlib import Path
from certood.bounds import Box, max_gap
def peak():  # kB
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
torch.set_num_threads(int(sys.argv[1]))
classes, samples, features = 1000, 64, 512
torch.manual_seed(0)
layer, box = torch.nn.Linear(features, classes), Box.around(torch.rand(samples, features), 0.1)
rows, radius = torch.rand(1000, features), box.radius
Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
before = peak()
ours, product = [], []
with torch.no_grad():
    for _ in range(4):
        start = time.perf_counter()
        max_gap(layer, box)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(classes):  # all K^2 rows, a thousand at a time
            radius @ rows.T
        product.append(time.perf_counter() - start)
print(min(ours), min(product), (peak() - before) / 1000)
"""


def quiet(function: Callable[[], object]) -> Callable[[], object]:
    return torch.no_grad()(function)


def network_of(name: str, channels: int, size: int, classes: int = 10) -> nn.Sequential:
    torch.manual_seed(0)
    return networks.build(name, channels, size, classes).to(memory_format=torch.channels_last)


def before(function: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        with one_function_at_a_time():
            function()

    return quiet(run)


def of_size(name: str) -> dict[str, Times]:
    channels, size, batch, seconds = SIZES[name]
    network, x = network_of(name, channels, size), torch.rand(batch, channels, size, size)
    box = Box.around(x, EPS)
    subjects: dict[str, Callable[[], object]] = {
        "plain": quiet(lambda: network(x)),
        "certify": quiet(lambda: confidence_upper(network, box)),
        "max_gap": quiet(lambda: max_gap(network, box)),
        "former rule": before(lambda: confidence_upper(network, box)),
        "four convolutions": quiet(lambda: naive_gap(network, x, EPS)),
        "ends alone": quiet(lambda: four_convolutions(network, x, EPS)),
        "sound": quiet(lambda: confidence_upper(network, box, sound=True)),
    }
    if name == "L" and shutil.which("g++"):
        whole = torch.compile(lambda z: max_gap(network, Box.around(z, EPS, cut=False)), fullgraph=True)
        subjects["compiled"] = quiet(lambda: whole(x))
    return interleaved(subjects, seconds)


def growth() -> str:
    """Seconds of certify over those of the plain pass, one thing changed at a time."""
    found: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}

    def add(title: str, network: nn.Module, batch: int) -> None:
        x = torch.rand(batch, 1, 28, 28)
        box = Box.around(x, EPS)
        found[title] = quiet(lambda: network(x)), quiet(lambda: confidence_upper(network, box))

    for batch in (8, 32, 128, 512):
        add(f"N = {batch}", network_of("S", 1, 28), batch)
    for classes in (10, 100, 1000):
        add(f"K = {classes}", network_of("S", 1, 28, classes), 64)
    for width in (16, 32, 64, 128):
        layers = [nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Flatten()]
        wide = nn.Sequential(*layers, nn.Linear(196 * width, 10)).to(memory_format=torch.channels_last)
        add(f"width {width}", wide, 128)
    times = interleaved({f"{t}/{i}": way for t, pair in found.items() for i, way in enumerate(pair)}, 15, most=10)
    rows = []
    for title in found:
        plain, certified = times[f"{title}/0"].median, times[f"{title}/1"].median
        rows.append([title, f"{1000 * plain:.1f}", f"{1000 * certified:.1f}", f"{certified / plain:.2f}"])
    return table(["S unless said, 28x28", "plain, ms", "certify, ms", "ratio"], rows)


def main() -> None:
    torch.set_num_threads(THREADS)
    hold_memory()
    about, parts, verdicts = machine(), [], []
    for name, (channels, size, batch, _) in SIZES.items():
        times = of_size(name)
        target = "2.2" if name == "L" else ""
        pairs = [
            *(("certify", "plain", target), ("max_gap", "plain", ""), ("former rule", "plain", "")),
            *(("four convolutions", "plain", ""), ("sound", "certify", "3" if name == "L" else "")),
        ]
        if "compiled" in times:
            pairs.append(("compiled", "plain", ""))
        parts.append(f"{name}, {channels}x{size}x{size}, batch {batch}\n\n{compared(times, pairs)}")
        if name == "L":
            verdicts.append(verdict("certify (eq. 6) / plain forward, L", ratio(times, "certify", "plain")[0], 2.2))
            verdicts.append(verdict("sound / float32 bound, L", ratio(times, "sound", "certify")[0], 3))
    run = subprocess.run([sys.executable, "-c", HEAD, str(THREADS)], capture_output=True, text=True, check=True)
    ours, product, megabytes = map(float, run.stdout.split())
    verdicts.append(verdict("K = 1000 head, N = 64, d = 512, MB", megabytes, 300))
    verdicts.append(verdict(f"its time over its matrix product's ({ours:.2f} s / {product:.2f} s)", ours / product, 2))
    parts.append(growth())
    legend = (
        "certify is eq. 6, max_gap eq. 7; former rule: certify as before `bounds/affine.py`; four convolutions: "
        "the paper's formulas, W+ and W- on both ends, last layer elided; sound: rounded outward; compiled: "
        "max_gap as one graph of torch.compile. Medians and best of each, all in turns in one process."
    )
    record("bounds.py", "what a guarantee costs", [about, "\n".join(verdicts), legend, *parts, peak()])


if __name__ == "__main__":
    main()
