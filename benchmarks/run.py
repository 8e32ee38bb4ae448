"""All benchmarks that need no files, or those that are named, one process each; each writes its section of RESULTS.md.

    python benchmarks/run.py [startup bounds steps loading evaluating precision]

`precision` trains for some minutes and runs only by name; `attacks.py` needs trained runs and has arguments of its own.
"""

import subprocess
import sys
import time
from pathlib import Path

USUAL = ("startup", "bounds", "steps", "loading", "evaluating")
OTHERS = ("precision",)


def main() -> None:
    chosen = sys.argv[1:] or list(USUAL)
    if unknown := set(chosen) - {*USUAL, *OTHERS}:
        sys.exit(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join((*USUAL, *OTHERS))}")
    failed = []
    for name in chosen:
        start = time.monotonic()
        script = Path(__file__).with_name(f"{name}.py")
        if subprocess.run([sys.executable, "-W", "ignore", str(script)], check=False).returncode:
            failed.append(name)
        print(f"--- {name}: {time.monotonic() - start:.0f} s\n", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
