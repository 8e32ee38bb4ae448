"""`certood verify`: check a certificate against weights and image, with numpy and nothing else of certood."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from certood.arguments import parse


@dataclass(frozen=True)
class Verify:
    """certood verify CERTIFICATE --weights FILE --image FILE: does a certificate hold?

    Example: certood verify seven.json --weights runs/good/weights.safetensors --image seven.png

    The bound is derived again by certood/verify.py alone: numpy, no PyTorch.
    """

    certificate: Annotated[Path, tyro.conf.Positional]
    """file that certood certify wrote"""
    weights: Path
    """weights.safetensors of the run, or the run folder"""
    image: Path
    """the image: .npy, PNG or what else Pillow reads"""
    json: bool = False
    """print the certificate for programs"""


def verify(arguments: Sequence[str]) -> None:
    parsed = parse(Verify, arguments, "verify")
    from certood.verify import verify as check

    content = check(parsed.certificate, parsed.weights, parsed.image)
    if parsed.json:
        print(json.dumps({"holds": True, **content}, indent=2))
        return
    print(
        f"{content['statement']}\nThe certificate holds: certificate, weights and image are those it was written for."
    )
