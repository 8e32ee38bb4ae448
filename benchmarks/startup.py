"""How long before anything happens: `certood --help`, imports; each a fresh process, best and median of several.

python benchmarks/startup.py
"""

import statistics
import subprocess
import sys
import time

from measuring import machine, record, table, verdict

SUBJECTS: dict[str, list[str]] = {
    "python alone": ["-c", "pass"],
    "certood --help": ["-m", "certood", "--help"],
    "certood train mnist --help": ["-m", "certood", "train", "mnist", "--help"],
    "import certood": ["-c", "import certood"],
    "import certood, then certood.Box": ["-c", "import certood; certood.Box"],
    "import certood, every public name": ["-c", "import certood; [getattr(certood, name) for name in certood.__all__]"],
    "import torch": ["-c", "import torch"],
}


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    for _ in range(6):
        for name, words in SUBJECTS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            taken[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(times[1:]) for name, times in taken.items()}  # the first reads from the disk
    verdicts = [
        verdict("certood --help, s", middle["certood --help"], 0.5),
        verdict("import certood, s", middle["import certood"], 2),
        verdict("import certood and PyTorch with it (certood.Box), s", middle["import certood, then certood.Box"], 2),
    ]
    rows = [[name, f"{middle[name]:.2f}", f"{min(times):.2f}", f"{times[0]:.2f}"] for name, times in taken.items()]
    parts = [machine(), "\n".join(verdicts), table(["", "median, s", "best", "first"], rows)]
    record("startup.py", "how long before anything happens", parts)


if __name__ == "__main__":
    main()
