"""Writes certificates: what is guaranteed for one image, in a file that others check without certood's bounds or torch.

The claim is computed by `certood.verify` itself, rounded up a little so that another machine's float64 stays below it,
and held against the bound that torch computes.
"""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import certood
from certood import verify
from certood.bounds import Box, score_upper
from certood.errors import BrokenInvariant, CertificateError
from certood.files import write

HEADROOM = 2.0**-26  # another order of summation changes float64 results by some 2^-50 of their size
AGREEMENT = 1e-4  # between float32 bounds that are not rounded outward and the claim, in log-odds


def architecture(network: nn.Module) -> list[dict[str, Any]]:
    """The layers of a network of the recipes, as `certood verify` reads them."""
    if not isinstance(network, nn.Sequential):
        raise CertificateError(f"certificates are for the networks of recipes, not for a {type(network).__name__}")
    return [_layer(name, module) for name, module in network.named_children()]


def _layer(name: str, module: nn.Module) -> dict[str, Any]:
    if isinstance(module, nn.ReLU):
        return {"kind": "relu"}
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
        return {"kind": "flatten"}
    if isinstance(module, nn.Linear) and module.bias is not None:
        return {"kind": "linear", "name": name}
    if isinstance(module, nn.Conv2d) and module.bias is not None and not isinstance(module.padding, str):
        plain = (module.groups, module.dilation, module.padding_mode) == (1, (1, 1), "zeros")
        if plain:
            return {
                "kind": "convolution", "name": name, "stride": list(module.stride), "padding": list(module.padding)
            }  # fmt: skip
    raise CertificateError(f"certificates are for the networks of recipes; layer {name} is {module}")


def certificate(
    weights: Path,
    network: nn.Module,
    image: NDArray[np.float32],
    eps: float,
    threshold: float | None = None,
    image_file: Path | None = None,
) -> dict[str, Any]:
    """What is guaranteed for one image [C, H, W] in [0, 1].

    `weights` is the safetensors file of the network, `threshold` the least score (log-odds) that is accepted, and
    `image_file` the file that the pixels were read from, if `certood verify` reads the same pixels from it.
    """
    image = np.ascontiguousarray(image, np.float32)
    if image_file is not None and not np.array_equal(verify.read_image(image_file, image.shape), image):
        raise CertificateError(
            f"{image_file} holds other pixels than those certified; save them as .npy, and name that"
        )
    if not 0 <= eps <= 1:
        raise CertificateError(f"eps is between 0 and 1, in units of the pixel range, not {eps}")
    try:
        data = weights.read_bytes()
    except OSError as error:
        raise CertificateError(f"cannot read {weights}: {error.strerror}") from None
    layers = architecture(network)
    bound = verify.score_bound(layers, verify.read_weights(data), image, eps)
    claim = bound + HEADROOM * (1 + abs(bound))
    _compare(network, image, eps, claim)
    content: dict[str, Any] = {
        "format": verify.FORMAT,
        "score_upper": claim,
        "confidence_upper": verify.confidence(claim),
        "threshold": None if threshold is None else float(threshold),
        "eps": float(eps),
        "shape": list(image.shape),
        "architecture": layers,
        "weights_sha256": hashlib.sha256(data).hexdigest(),
        "pixels_sha256": verify.digest_of_pixels(image),
        "image_file_sha256": None if image_file is None else hashlib.sha256(image_file.read_bytes()).hexdigest(),
        "version": f"certood {certood.__version__}",
    }
    content["statement"] = verify.statement(content)
    return verify.sealed(content)


def write_certificate(path: Path, content: dict[str, Any]) -> None:
    write(path, lambda beside: beside.write_bytes(verify.written(content)))


def _compare(network: nn.Module, image: NDArray[np.float32], eps: float, claim: float) -> None:
    """Two computations of one bound: numpy's between torch's without and with allowance for rounding."""
    pixels = torch.from_numpy(image)[None].to(next(network.parameters()))
    box = Box.around(pixels, eps + verify.UNIT if eps else 0.0)
    least, most = float(score_upper(network, box)[0]), float(score_upper(network, box, sound=True)[0])
    slack = AGREEMENT * (1 + abs(claim))
    if not (least - slack <= claim <= most + slack) or math.isnan(claim):
        raise BrokenInvariant(
            f"numpy bounds the score by {claim!r}, torch by {most!r} (rounded outwards) and {least!r}: the weights are "
            f"not those of the network, or one of them is wrong: please report it with this line"
        )
