"""Checks a certificate with numpy alone: an auditor needs to trust this file, numpy, and (for PNG) Pillow's decoder.

A certificate says of one image x and one network: no float32 image z in [0, 1] with |z - x| <= eps in every pixel gets
a score above the bound, when the network is executed in float32, in any order of summation. Here the bound is derived
again from weights and image, in float64, with every rounding error allowed for (docs/soundness.md; eps is widened by a
last place of float32, so that 8-bit images a whole number of levels away are inside). A layer, its inputs widened by g
of their size to centre c and radius r, gives  W c + b -+ (|W| r + g |b| + underflow),  g = gamma_(n + 2) (1 + 2^-20).
The score is the log-odds of the confidence, and no score in the box exceeds max_k -log sum_(l != k) exp(-gap_kl).
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certood.errors import CertificateError

Floats = NDArray[np.float64]
Pixels = NDArray[np.float32]  # [C, H, W], in [0, 1]

FORMAT = 1
UNIT, LEAST, LARGEST = 2.0**-24, 2.0**-126, float(np.finfo(np.float32).max)
SPARE = 1 + 2.0**-20  # float64 errors: 2^29 times smaller each
MOST_BYTES, MOST_TEXT, MOST_NUMBERS = 2**31, 2**20, 2**25  # of weights, of a certificate, of an unfolded image
PICTURES = ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP")  # and no reader that would start another program
LAYERS = {"relu": (), "flatten": (), "linear": ("name",), "convolution": ("name", "stride", "padding")}
FIELDS = (
    *("format", "statement", "score_upper", "confidence_upper", "threshold", "eps", "shape", "architecture"),
    *("weights_sha256", "pixels_sha256", "image_file_sha256", "version", "certificate_sha256"),
)


# ---- what is read ----------------------------------------------------------------------------------------------------


def read_certificate(path: Path) -> dict[str, Any]:
    """The content, if not a byte was changed; who writes a new digest as well cannot change what is derived here."""
    data = _bytes(path, MOST_TEXT)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"{path} is no certificate: {error}") from None
    if not isinstance(content, dict) or tuple(content) != FIELDS or content["format"] != FORMAT:
        raise CertificateError(f"{path}: the certificate was changed, or is not of format {FORMAT}")
    if sealed(content) != content or written(content) != data:
        raise CertificateError(f"{path}: the certificate was changed, it does not have its own sha256 any more")
    _check(content)
    return content


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """With the digest of all other fields."""
    others = {field: content[field] for field in FIELDS[:-1]}
    return {**others, FIELDS[-1]: hashlib.sha256(json.dumps(others).encode()).hexdigest()}


def written(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def read_weights(data: bytes) -> dict[str, NDArray[np.float32]]:
    """The float32 tensors of a safetensors file: 8 bytes of length, a JSON header, numbers; all sizes are checked."""
    try:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 or length > len(data) - 8:
            raise ValueError("shorter than its header says")
        header = json.loads(data[8 : 8 + length])
        body, end, found = memoryview(data)[8 + length :], 0, {}
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            start, stop = entry["data_offsets"]
            shape = tuple(entry["shape"])
            if entry["dtype"] != "F32" or not all(type(size) is int and size > 0 for size in shape):
                raise ValueError(f"{name} is {entry['dtype']} {shape}, not float32 numbers")
            if start != end or stop - start != 4 * math.prod(shape) or stop > len(body):
                raise ValueError(f"{name} has other bytes than its shape {shape}")
            found[name], end = np.frombuffer(body[start:stop], "<f4").reshape(shape), stop
        if end != len(body):
            raise ValueError("bytes are left over")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CertificateError(f"the weights are no safetensors file of float32 numbers: {error}") from None
    return found


def read_image(path: Path, shape: Sequence[int]) -> Pixels:
    """The pixels of a .npy file (float32 in [0, 1], or bytes) or of any format that Pillow reads.  # [C, H, W]"""
    try:
        if path.suffix == ".npy":
            stored = np.array(np.load(path, mmap_mode="r", allow_pickle=False))  # mapped: a size that is no lie
        else:
            stored = _decoded(path, shape)
    except CertificateError:
        raise
    except Exception as error:  # decoders fail in many ways, and all mean: not an image
        raise CertificateError(f"{path} cannot be read as an image: {error}") from None
    if stored.dtype == np.uint8:
        stored = stored.astype(np.float32) / np.float32(255)
    if stored.shape != tuple(shape) or stored.dtype != np.float32 or not bool(((stored >= 0) & (stored <= 1)).all()):
        raise CertificateError(
            f"{path} holds {stored.dtype} {stored.shape}; the certificate is for float32 {tuple(shape)} in [0, 1]"
        )
    return stored


def _decoded(path: Path, shape: Sequence[int]) -> NDArray[Any]:
    from PIL import Image

    with Image.open(path, formats=PICTURES) as image:
        if (image.height, image.width) != tuple(shape[1:]):  # before it is decoded
            raise CertificateError(
                f"{path} has {image.height} x {image.width} pixels, the certificate is for {shape[1]} x {shape[2]}"
            )
        pixels = np.asarray(image.convert("L" if shape[0] == 1 else "RGB"))
    return pixels[None] if shape[0] == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def digest_of_pixels(image: Pixels) -> str:
    """sha256 of shape and little-endian float32 pixels."""
    return hashlib.sha256(f"{image.shape}".encode() + np.ascontiguousarray(image, "<f4").tobytes()).hexdigest()


def _bytes(path: Path, most: int) -> bytes:
    try:
        if path.stat().st_size > most or not path.is_file():
            raise CertificateError(f"{path} is no file, or larger than {most} bytes; that is none of certood's")
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None


def _check(content: Mapping[str, Any]) -> None:
    """The fields that numbers are computed from are what they should be."""
    shape, eps, layers, least = content["shape"], content["eps"], content["architecture"], content["threshold"]
    numbers = (eps, content["score_upper"], content["confidence_upper"], 0.0 if least is None else least)
    sizes = isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 < n < 2**12 for n in shape)
    floats = all(type(number) in (int, float) and abs(number) < 1e300 for number in numbers) and 0 <= eps <= 1
    if not (sizes and floats and shape[0] in (1, 3) and isinstance(layers, list) and len(layers) <= 1000):
        raise CertificateError("the certificate was changed: shape, eps, bound or architecture is none")


# ---- what is computed ------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")  # what overflows is refused in the end
def score_bound(
    layers: Sequence[Mapping[str, Any]], weights: Mapping[str, NDArray[np.float32]], image: Pixels, eps: float
) -> float:
    """The bound of the score over {z in [0, 1] : |z - image| <= eps}, for the network as it is executed in float32."""
    x, unused = image.astype(np.float64), dict(weights)
    reach = eps + UNIT if eps else 0.0
    lower = np.maximum(np.nextafter(x - reach, -1), 0)
    upper = np.minimum(np.nextafter(x + reach, 2), 1)
    if not layers or layers[-1].get("kind") != "linear":
        raise CertificateError("the architecture does not end in a linear layer")
    for number, layer in enumerate(layers):
        kind = layer.get("kind")
        if tuple(layer) != ("kind", *LAYERS.get(str(kind), "?")):
            raise CertificateError(f"the architecture holds a layer {layer}; certood verify knows no such")
        if kind == "relu":
            lower, upper = np.maximum(lower, 0), np.maximum(upper, 0)
        elif kind == "flatten":
            lower, upper = lower.reshape(-1), upper.reshape(-1)
        else:
            name = layer.get("name")
            if f"{name}.weight" not in unused or f"{name}.bias" not in unused:
                raise CertificateError(f"the weights hold no layer {name!r}, or the architecture uses it twice")
            weight, bias = unused.pop(f"{name}.weight"), unused.pop(f"{name}.bias")
            if number == len(layers) - 1:
                break
            lower, upper = _affine(layer, lower, upper, weight.astype(np.float64), bias.astype(np.float64))
    if unused:
        raise CertificateError(f"the architecture leaves out weights: {', '.join(sorted(unused))}")
    return _last(lower, upper, weight.astype(np.float64), bias.astype(np.float64))


def gamma(terms: int) -> float:
    if terms > 2**21:
        raise CertificateError(f"a layer sums {terms} terms, too many for a bound in float32")
    return terms * UNIT / (1 - terms * UNIT) * SPARE


def _affine(
    layer: Mapping[str, Any], lower: Floats, upper: Floats, weight: Floats, bias: Floats
) -> tuple[Floats, Floats]:
    rows = weight.reshape(len(weight), -1)  # [outputs, n]
    if layer["kind"] == "convolution":
        lower, upper = _windows(layer, lower, weight.shape), _windows(layer, upper, weight.shape)  # [n, H', W']
    plain = (layer["kind"] == "linear") == (lower.ndim == 1)
    if not plain or lower.shape[0] != rows.shape[1] or bias.shape != rows.shape[:1]:
        raise CertificateError(f"layer {layer['name']} does not fit: {weight.shape} after {lower.shape}")
    g, size, underflow = _sizes(lower, upper, rows, bias)
    lower, upper = lower - g * np.abs(lower), upper + g * np.abs(upper)
    centre, bias = (lower + upper) / 2, bias.reshape(-1, *[1] * (lower.ndim - 1))
    reach = (upper - centre) * (1 + 2.0**-30)  # more than float64 loses here
    centre = np.tensordot(rows, centre, 1) + bias
    radius = np.tensordot(size, reach, 1) + g * np.abs(bias) + underflow
    return centre - radius, centre + radius


def _sizes(lower: Floats, upper: Floats, rows: Floats, bias: Floats) -> tuple[float, Floats, float]:
    """gamma, |W|, and what underflow may add; nothing may overflow float32."""
    terms, size = rows.shape[1], np.abs(rows)
    largest = float(max(np.abs(lower).max(), np.abs(upper).max()))
    if not float(size.sum(1).max()) * largest + float(np.abs(bias).max()) < LARGEST / 4:  # also where it is NaN
        raise CertificateError("a sum may overflow float32, or a weight is not finite: nothing is guaranteed")
    return gamma(terms + 2), size, 2.0**5 * LEAST * (terms + 1) * (1 + largest + float(size.max()))


def _windows(layer: Mapping[str, Any], x: Floats, shape: tuple[int, ...]) -> Floats:
    """What each output of a convolution sees.  # [C, H, W] -> [C h w, H', W']"""
    (down, right), (top, left) = layer["stride"], layer["padding"]
    if len(shape) != 4 or x.ndim != 3 or shape[1] != x.shape[0] or min(down, right) < 1:
        raise CertificateError(f"layer {layer['name']} does not fit: a convolution {shape} after {x.shape}")
    if not (0 <= top < shape[2] and 0 <= left < shape[3]) or x[0].size * math.prod(shape[1:]) > MOST_NUMBERS:
        raise CertificateError(f"layer {layer['name']} has padding that is none, or is too large")
    padded = np.pad(x, ((0, 0), (top, top), (left, left)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, shape[2:], axis=(1, 2))[:, ::down, ::right]
    return np.ascontiguousarray(seen.transpose(0, 3, 4, 1, 2)).reshape(-1, *seen.shape[1:3])


def _last(lower: Floats, upper: Floats, weight: Floats, bias: Floats) -> float:
    """The last layer is elided: gap_kl = (W_k - W_l) c + b_k - b_l + |W_k - W_l| r + what two executed logits add."""
    if weight.ndim != 2 or lower.shape != weight.shape[1:] or bias.shape != weight.shape[:1] or len(bias) < 2:
        raise CertificateError(f"the last layer does not fit: {weight.shape} after {lower.shape}")
    g, size, underflow = _sizes(lower, upper, weight, bias)
    reach = np.maximum(np.abs(lower), np.abs(upper))
    magnitudes = size @ reach + np.abs(bias)
    errors = g * magnitudes + underflow  # [K]
    centre = (lower + upper) / 2
    logits = weight @ centre + bias
    best, classes = -math.inf, len(bias)
    for k in range(classes):
        others = np.arange(classes) != k
        gaps = logits[k] - logits[others] + np.abs(weight[k] - weight[others]) @ (upper - centre)
        negated = -(gaps + errors[k] + errors[others])
        top = float(negated.max())
        best = max(best, -(top + math.log(float(np.exp(negated - top).sum()))))
    best += 2.0**-49 * (classes + 32 + 32 * float(magnitudes.max()))  # float64, from logits to score
    if not math.isfinite(best):
        raise CertificateError("the bound is not finite: nothing is guaranteed")
    return best


# ---- the verdict -----------------------------------------------------------------------------------------------------


def statement(content: Mapping[str, Any]) -> str:
    """In words, from the numbers alone."""
    said = (
        f"No float32 image with pixels in [0, 1] that differs from this one by at most {content['eps']!r} in every "
        f"pixel gets a score above {content['score_upper']!r} (log-odds; a confidence above "
        f"{content['confidence_upper']:.6g}) from this network with these weights, executed in float32."
    )
    threshold = content["threshold"]
    if threshold is None:
        return said
    if content["score_upper"] < threshold:
        return f"{said} All of them are rejected: a score is accepted from {threshold!r} on."
    return f"{said} That is not below the threshold {threshold!r}: it does not say that they are rejected."


def verify(certificate: Path, weights: Path, image: Path) -> dict[str, Any]:
    """The content of a certificate that holds. If it does not, a CertificateError says what was changed."""
    content = read_certificate(certificate)
    data = _bytes(weights / "weights.safetensors" if weights.is_dir() else weights, MOST_BYTES)
    changed = [] if hashlib.sha256(data).hexdigest() == content["weights_sha256"] else [f"the weights {weights}"]
    known = content["image_file_sha256"]  # None where the image came as numbers
    if known is not None and hashlib.sha256(_bytes(image, MOST_BYTES)).hexdigest() != known:
        changed.append(f"the image {image}")
    else:
        pixels = read_image(image, content["shape"])
        if digest_of_pixels(pixels) != content["pixels_sha256"]:
            changed.append(f"the image {image}")
    if changed:
        raise CertificateError(f"{certificate} is for others: changed since it was written: {' and '.join(changed)}")
    try:
        bound = score_bound(content["architecture"], read_weights(data), pixels, content["eps"])
        said = (confidence(content["score_upper"]), statement(content))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"{certificate} was changed: nothing can be computed from it ({error})") from None
    if not bound <= content["score_upper"]:
        raise CertificateError(
            f"{certificate} claims too much: the score is bounded by {bound!r}, not by {content['score_upper']!r}"
        )
    if said != (content["confidence_upper"], content["statement"]):
        raise CertificateError(f"{certificate} was changed: its words do not follow from its numbers")
    return content


def confidence(score: float) -> float:
    """1 / (1 + exp(-score)), rounded up."""
    return min(1.0, (1 / (1 + math.exp(-score)) if score > -700 else math.exp(-700)) * (1 + 2.0**-40))
