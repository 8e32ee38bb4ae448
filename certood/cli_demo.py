"""`certood demo`: all of it on built-in images, in a few minutes: train, attack, certify, report."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rich.console import Console

from certood.arguments import parse
from certood.recipes import MethodName, recipe


@dataclass(frozen=True)
class Demo:
    """Everything on built-in images, nothing to download: train, attack, certify, report.

    Example: certood demo --out runs/demo

    Trains Plain, OE and GOOD on handwritten digits, and asks how sure each is about letters, photographs and noise.
    """

    out: Path = Path("runs/demo")
    """folder for runs, scores and report; what is finished is kept, the rest resumed"""
    seed: int = 0
    """of everything random"""


METHODS = ("plain", "oe", "good")
ATTACKED = 200  # images a set: enough to see, few enough for minutes
LIMIT = 2000  # images of a set that are scored and certified: of noise there is no end


def demo(arguments: Sequence[str]) -> None:
    parsed = parse(Demo, arguments, "demo")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # no spinning; heeded if it is set before torch is imported
    try:
        _demo(parsed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on") from None


def _demo(parsed: Demo) -> None:
    console = Console(stderr=True)
    began = time.monotonic()

    def stage(number: int, text: str) -> None:
        seconds = f"{time.monotonic() - began:.0f} s"
        console.print(f"[{number}/5] {seconds:>5}  {text}", highlight=False, markup=False, soft_wrap=True)

    from dataclasses import replace

    import torch

    from certood.cli_evaluate import Live, print_table
    from certood.contest import Contest
    from certood.evaluation import Plan
    from certood.machine import device_of
    from certood.report.page import report
    from certood.summary import summaries
    from certood.training import train

    # A step of so small a network is a few milliseconds in a hundred parts: two threads gain little on a quiet machine,
    # and wait for each other most of the time where anything else runs.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for number, method in enumerate(METHODS, 1):
        stage(number, f"training {method} on 4,000 handwritten digits")
        chosen = replace(recipe("demo", cast(MethodName, method)), seed=parsed.seed)
        train(chosen, parsed.out / method, resume=True, quiet=True)
    torch.set_num_threads(threads)
    stage(4, "attacking and certifying them on letters, photographs and noise")
    plan = Plan("standard", attacked=ATTACKED, seed=parsed.seed)
    with Live(quiet=True) as live:
        contest = Contest(parsed.out / "scores", None, plan, (), (), LIMIT, device_of("auto"), live)
        scores = contest.run([parsed.out / method for method in METHODS])
    stage(5, "writing the report")
    page = report(parsed.out / "scores", parsed.out / "report")
    print_table(summaries(scores))
    print(f"""
AUC: how well digits are told from what is no digit, as it is. AAUC: the same
after an attack that changes each pixel by up to 0.3. GAUC: what is guaranteed
whatever an attacker does within 0.3; 0 where nothing is guaranteed.

Open this in a browser, it shows all of it: {page}""")
