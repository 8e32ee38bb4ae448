"""What the benchmarks share: subjects timed in turns, the machine in words, sections of RESULTS.md."""

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import torch

RESULTS = Path(__file__).with_name("RESULTS.md")
THREADS = 2

Subject = Callable[[], object]


class Times(NamedTuple):
    """Seconds of one subject."""

    median: float
    best: float


def interleaved(subjects: Mapping[str, Subject], seconds: float, least: int = 3, most: int = 25) -> dict[str, Times]:
    """All subjects in turns, so that all see the same machine, for about so many seconds; two rounds warm up."""
    for _ in range(2):
        for subject in subjects.values():
            subject()
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    began = time.perf_counter()
    for done in range(most):
        if done >= least and time.perf_counter() - began > seconds:
            break
        for name, subject in subjects.items():
            start = time.perf_counter()
            subject()
            taken[name].append(time.perf_counter() - start)
    return {name: Times(statistics.median(times), min(times)) for name, times in taken.items()}


def ratio(times: Mapping[str, Times], subject: str, baseline: str) -> tuple[float, float]:
    """Of medians, and of the best of each, which another process on the machine disturbs less."""
    return times[subject].median / times[baseline].median, times[subject].best / times[baseline].best


def compared(times: Mapping[str, Times], pairs: Sequence[tuple[str, str, str]]) -> str:
    """A table of ratios: (subject, baseline, target) each."""
    rows = []
    for subject, baseline, target in pairs:
        middle, best = ratio(times, subject, baseline)
        seconds = f"{times[subject].median:.4f} / {times[baseline].median:.4f}"
        rows.append([f"{subject} / {baseline}", f"{middle:.2f}", f"{best:.2f}", seconds, target])
    return table(["", "medians", "best of each", "seconds", "target"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def verdict(what: str, measured: float, limit: float, at_most: bool = True) -> str:
    met = measured <= limit if at_most else measured >= limit
    return f"- {'met' if met else 'NOT met'}: {what}: {measured:.2f}, {'at most' if at_most else 'at least'} {limit:g}"


def peak() -> str:
    return f"Peak memory of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:,.0f} MB."


def machine() -> str:
    name = platform.processor() or platform.machine()
    processors = Path("/proc/cpuinfo")
    if processors.exists():
        models = [line for line in processors.read_text().splitlines() if line.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    bfloat16 = "with" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "without"
    load = os.getloadavg()[0]
    return (
        f"{name}, {os.cpu_count()} cores, {bfloat16} bfloat16; load {load:.1f} at the start; "
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, Python {platform.python_version()}; "
        f"{datetime.now(UTC):%d %B %Y}."
    )


def record(script: str, title: str, parts: Sequence[str]) -> None:
    """Print a section, and put it into RESULTS.md in place of the one that is there."""
    heading = f"## `python benchmarks/{script}`"
    text = "\n\n".join([f"{heading}: {title}", *parts])
    print(text, flush=True)
    before, _, after = RESULTS.read_text(encoding="utf-8").partition(heading)
    _, mark, others = after.partition("\n## ")
    RESULTS.write_text(f"{before.rstrip()}\n\n{text}\n{mark}{others}", encoding="utf-8")
