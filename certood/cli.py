"""The command line. Thin: it reads arguments, calls one function and prints. What is slow to import waits its turn."""

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import certood
from certood.errors import CertoodError
from certood.files import reason
from certood.ranks import speaks

HELP = """certood: image classifiers that provably know when they don't know

  certood demo                          all of it on built-in images, in minutes
  certood train mnist --data DIR --out runs/good      train a recipe
  certood evaluate runs/good --data DIR --out scores  score, attack and certify
  certood report scores                 one page of tables, figures, pictures
  certood reproduce mnist --data DIR --out DIR        all systems of the paper
  certood calibrate runs/good --data DIR         set the threshold to accept at
  certood certify runs/good a.png --eps 0.1      what holds near an image
  certood verify seven.json --weights runs/good --image seven.png  check a proof
  certood data list                     image sets, and which are here

certood COMMAND --help explains a command, certood --version tells the version."""


def train(arguments: Sequence[str]) -> None:
    from certood.cli_train import train as run_train

    run_train(arguments)


def reproduce(arguments: Sequence[str]) -> None:
    from certood.cli_reproduce import reproduce as run_reproduce

    run_reproduce(arguments)


def demo(arguments: Sequence[str]) -> None:
    from certood.cli_demo import demo as run_demo

    run_demo(arguments)


def verify(arguments: Sequence[str]) -> None:
    from certood.cli_verify import verify as run_verify

    run_verify(arguments)


def data(arguments: Sequence[str]) -> None:
    from certood.cli_data import data as run_data

    run_data(arguments)


def evaluate(arguments: Sequence[str]) -> None:
    from certood.cli_evaluate import evaluate as run_evaluate

    run_evaluate(arguments)


def report(arguments: Sequence[str]) -> None:
    from certood.cli_report import report as run_report

    run_report(arguments)


def calibrate(arguments: Sequence[str]) -> None:
    from certood.cli_guard import calibrate as run_calibrate

    run_calibrate(arguments)


def certify(arguments: Sequence[str]) -> None:
    from certood.cli_guard import certify as run_certify

    run_certify(arguments)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "report": report,
    "reproduce": reproduce,
    "calibrate": calibrate,
    "certify": certify,
    "verify": verify,
    "data": data,
}


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may have letters that this terminal has not
        sys.stdout.reconfigure(errors="backslashreplace")
    if not words or words[0] in ("--help", "-h", "help"):
        print(HELP)
        return
    if words[0] == "--version":
        print(f"certood {certood.__version__}")
        return
    try:
        if words[0] not in COMMANDS:
            raise CertoodError(f"no command is called {words[0]!r}; there are {', '.join(COMMANDS)}")
        COMMANDS[words[0]](words[1:])
        if sys.stdout:
            sys.stdout.flush()  # here, where a full disk or a closed pipe is told in one line
    except CertoodError as error:
        if speaks():
            print(f"certood: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if speaks():
            print(f"certood: stopped{stop}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # certood data list | head
        sys.stderr.close()
        _drop_output()
    except OSError as error:
        if speaks():
            print(f"certood: {reason(error)}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        _drop_output()
        sys.exit(2)


def _drop_output() -> None:
    """What could not be written would be tried again at the end, and fail again."""
    if sys.stdout:
        with suppress(OSError):
            sys.stdout.close()
