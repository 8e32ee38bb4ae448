"""The auditor's 300 lines: bounds against exact arithmetic and executions, and files that were changed."""

import hashlib
import json
import math
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save, save_file
from torch import nn

from certood import Box, networks, verify
from certood.bounds import score_upper
from certood.certificates import architecture, certificate, write_certificate
from certood.detectors import Softmax
from certood.errors import CertificateError

ONE_LAYER = [{"kind": "flatten"}, {"kind": "linear", "name": "end"}]


def one_layer(seed: int, inputs: int, classes: int = 2) -> tuple[dict[str, Any], NDArray[np.float32]]:
    draw = np.random.default_rng(seed)
    weight = draw.normal(size=(classes, inputs)) * 2.0 ** draw.integers(-30, 20, (classes, 1))
    weights = {"end.weight": weight.astype(np.float32), "end.bias": draw.normal(size=classes).astype(np.float32)}
    return weights, draw.random((1, 1, inputs)).astype(np.float32)


def worst(weights: dict[str, Any], image: NDArray[np.float32], eps: float, top: int) -> Fraction:
    """max f_top - f_other over all real z within eps, in rational arithmetic."""
    rows = [[Fraction(float(w)) for w in row] for row in weights["end.weight"]]
    total = Fraction(float(weights["end.bias"][top])) - Fraction(float(weights["end.bias"][1 - top]))
    for mine, other, pixel in zip(rows[top], rows[1 - top], image.ravel().tolist(), strict=True):
        ends = max(Fraction(0), Fraction(pixel) - Fraction(eps)), min(Fraction(1), Fraction(pixel) + Fraction(eps))
        total += (mine - other) * ends[mine > other]
    return total


@pytest.mark.parametrize("eps", [0.0, 1e-9, 8 / 255, 0.3, 1.0])
def test_no_exact_worst_corner_is_above_the_bound(eps: float) -> None:
    for seed in range(60):
        weights, image = one_layer(seed, 1 + seed)
        bound = verify.score_bound(ONE_LAYER, weights, image, eps)
        exact = max(worst(weights, image, eps, top) for top in (0, 1))
        assert Fraction(bound) >= exact
        assert bound - float(exact) <= 1e-3 * np.abs(weights["end.weight"]).sum() + 1e-5


def executed(seed: int) -> int:
    """How often float32 exceeds the bound of a single image: rows summed in several orders."""
    weights, image = one_layer(seed, 300)
    bound, above = verify.score_bound(ONE_LAYER, weights, image, 0.0), 0
    products = weights["end.weight"] * image.ravel()
    for order in (slice(None), slice(None, None, -1), np.argsort(products[0])):
        logits = np.add.accumulate(products[:, order], axis=1, dtype=np.float32)[:, -1] + weights["end.bias"]
        above += abs(float(logits[0]) - float(logits[1])) > bound
    return above


def test_no_execution_is_above_the_bound_and_without_gamma_some_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(executed(seed) for seed in range(100)) == 0
    monkeypatch.setattr(verify, "gamma", lambda terms: 0.0)
    assert sum(executed(seed) for seed in range(100)) > 20


@pytest.mark.parametrize(("name", "channels", "size"), [("XS", 1, 28), ("S", 3, 32), ("XS", 3, 9)])
def test_two_computations_of_one_bound(name: str, channels: int, size: int) -> None:
    torch.manual_seed(0)
    network = networks.build(name, channels, size, 5).requires_grad_(False)
    weights = {key: value.numpy() for key, value in network.state_dict().items()}
    for seed, eps in enumerate((0.0, 0.01, 0.3, 1.0)):
        draw = torch.Generator().manual_seed(seed)
        x = torch.rand(1, channels, size, size, generator=draw)
        box = Box.around(x, eps + 2.0**-24 if eps else 0.0)
        ours = verify.score_bound(architecture(network), weights, x[0].numpy(), eps)
        # torch sums the radius in float32, and allows for that too
        theirs, plain = (float(score_upper(network, box, sound)) for sound in (True, False))
        assert plain - 1e-5 * abs(plain) <= ours <= theirs + 1e-6
        assert theirs - ours <= 1e-3 * (1 + abs(ours))
        for _ in range(10):
            z = torch.where(torch.rand(x.shape, generator=draw) < 0.5, (x - eps).clamp(0), (x + eps).clamp(max=1))
            assert float(Softmax(network).score(z)) <= ours


def test_eight_bit_neighbours_are_inside() -> None:
    """k levels away, rounded to float32 as every reader does: a hair more than k/255."""
    levels = np.arange(256, dtype=np.float32)
    image = levels / np.float32(255)
    steep = {
        "end.weight": np.stack([np.full(256, 1e6), np.zeros(256)]).astype(np.float32),
        "end.bias": np.zeros(2, "f4"),
    }
    for step in (1, 3, 8, 77):
        bound = verify.score_bound(ONE_LAYER, steep, image.reshape(1, 16, 16), step / 255)
        moved = np.minimum(levels + step, 255) / np.float32(255)
        assert Fraction(bound) >= sum(Fraction(10**6) * Fraction(float(z)) for z in moved)


# ---- files that were changed -----------------------------------------------------------------------------------------


class Given:
    """A certificate with its weights and its image."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.network = networks.build("XS", 1, 8, 3).requires_grad_(False)
        self.weights, self.image, self.file = folder / "w.safetensors", folder / "seven.png", folder / "seven.json"
        save_file({key: value.numpy() for key, value in self.network.state_dict().items()}, self.weights)
        pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels).save(self.image)
        self.pixels = pixels[None].astype(np.float32) / np.float32(255)
        self.content = certificate(self.weights, self.network, self.pixels, 0.01, 4.0, self.image)
        write_certificate(self.file, self.content)

    def check(self) -> dict[str, Any]:
        return verify.verify(self.file, self.weights, self.image)

    def forge(self, **changes: Any) -> None:
        """With a digest that is right again."""
        self.file.write_bytes(verify.written(verify.sealed({**self.content, **changes})))


@pytest.fixture
def given_one(tmp_path: Path) -> Given:
    return Given(tmp_path)


def test_what_holds_is_said_in_words(given_one: Given) -> None:
    content = given_one.check()
    assert content == given_one.content
    assert "All of them are rejected: a score is accepted from 4.0 on" in content["statement"]
    assert "differs from this one by at most 0.01 in every pixel" in content["statement"]
    assert content["version"].startswith("certood ")


def test_every_byte_of_a_certificate_counts(given_one: Given) -> None:
    data = given_one.file.read_bytes()
    for place in range(len(data)):
        given_one.file.write_bytes(data[:place] + bytes([data[place] ^ (1, 0x20)[place % 2]]) + data[place + 1 :])
        with pytest.raises(CertificateError, match=r"seven\.json"):
            verify.read_certificate(given_one.file)
    for other in (data + b"\n", data[:-1], b"", data + data, b" " + data):
        given_one.file.write_bytes(other)
        with pytest.raises(CertificateError, match=r"seven\.json"):
            given_one.check()


@pytest.mark.parametrize("what", ["weights", "image"])
def test_every_byte_of_weights_and_image_counts(what: str, given_one: Given) -> None:
    path: Path = getattr(given_one, what)
    data = path.read_bytes()
    some = range(len(data)) if what == "image" else [*range(400), *range(400, len(data), 397), len(data) - 1]
    for place in some:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CertificateError, match=f"changed since it was written: the {what} .*{path.name}"):
            given_one.check()
    path.write_bytes(data)
    given_one.check()


def test_both_at_once_are_both_named(given_one: Given) -> None:
    for path in (given_one.weights, given_one.image):
        path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CertificateError, match=r"the weights .* and the image"):
        given_one.check()


FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "a lower bound": ({"score_upper": -1.0}, "claims too much: the score is bounded by"),
    "a larger eps": ({"eps": 0.2}, "claims too much"),
    "a larger eps as text": ({"eps": "0.2"}, "was changed"),
    "a negative eps": ({"eps": -0.1}, "was changed"),
    "other words": ({"statement": "All is well."}, "its words do not follow from its numbers"),
    "another confidence": ({"confidence_upper": 0.1}, "its words do not follow"),
    "another threshold": ({"threshold": 5.0}, "its words do not follow"),
    "a threshold that is false": ({"threshold": False}, "was changed"),
    "no bound": ({"score_upper": None}, "was changed"),
    "a bound that is true": ({"score_upper": True}, "was changed"),
    "another shape": ({"shape": [1, 16, 4]}, "pixels, the certificate is for 16 x 4"),
    "a huge shape": ({"shape": [1, 10**6, 10**6]}, "was changed"),
    "no layers": ({"architecture": []}, "does not end in a linear layer"),
    "layers that are none": ({"architecture": [1, 2]}, "nothing can be computed from it"),
    "an unknown layer": ({"architecture": [{"kind": "tanh"}, {"kind": "linear", "name": "8"}]}, "knows no such"),
    "fewer layers": ({"architecture": [{"kind": "flatten"}, {"kind": "linear", "name": "9"}]}, "leaves out weights"),
    "another format": ({"format": 2}, "not of format 1"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_who_writes_a_new_digest_still_cannot_claim_what_is_false(name: str, given_one: Given) -> None:
    changes, told = FORGERIES[name]
    given_one.forge(**changes)
    with pytest.raises(CertificateError, match=told):
        given_one.check()


def test_relu_cannot_be_left_out_nor_a_layer_be_used_twice(given_one: Given) -> None:
    layers = given_one.content["architecture"]
    for other in (
        [layer for layer in layers if layer["kind"] != "flatten"],
        [{**layer, "stride": [1, 1]} if layer["kind"] == "convolution" else layer for layer in layers],
        [{**layer, "stride": [0, 1]} if layer["kind"] == "convolution" else layer for layer in layers],
        [{**layer, "stride": "ab"} if layer["kind"] == "convolution" else layer for layer in layers],
        [{**layer, "padding": [-1, 10**9]} if layer["kind"] == "convolution" else layer for layer in layers],
        [*layers[:2], *layers],
        [*layers[:-1], {**layers[-1], "activation": "tanh"}],
    ):
        given_one.forge(architecture=other)
        with pytest.raises(CertificateError):
            given_one.check()


def test_files_that_are_none(given_one: Given, tmp_path: Path) -> None:
    for what in ("file", "weights", "image"):
        before = getattr(given_one, what)
        for path in (tmp_path / "not there", tmp_path / "folder", Path("/dev/zero")):
            (tmp_path / "folder").mkdir(exist_ok=True)
            setattr(given_one, what, path)
            with pytest.raises(CertificateError):
                given_one.check()
        setattr(given_one, what, before)


def test_numbers_may_come_as_npy(given_one: Given, tmp_path: Path) -> None:
    path = tmp_path / "seven.npy"
    np.save(path, given_one.pixels)
    content = certificate(given_one.weights, given_one.network, given_one.pixels, 0.01)
    write_certificate(given_one.file, content)
    assert verify.verify(given_one.file, given_one.weights, path)["threshold"] is None
    for other in (
        given_one.pixels.astype(np.float64),
        given_one.pixels * 255,
        given_one.pixels[:, :4],
        given_one.pixels * 0,
    ):
        np.save(path, other)
        with pytest.raises(CertificateError):
            verify.verify(given_one.file, given_one.weights, path)
    np.save(path, np.array([{"run": "code"}], dtype=object), allow_pickle=True)
    with pytest.raises(CertificateError, match="cannot be read as an image"):
        verify.verify(given_one.file, given_one.weights, path)


def header(content: Any) -> bytes:
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}) + b"\0" * 4,
        header({"a": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}}) + b"\0" * 4,
        header({"a": {"dtype": "F16", "shape": [1], "data_offsets": [0, 4]}}) + b"\0" * 4,
        header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}) + b"\0" * 8,
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}),
        header({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}),
        header({"a": 1}),
        struct.pack("<Q", 100_000) + b"[" * 100_000,
    ],
)
def test_weights_that_are_none(data: bytes) -> None:
    with pytest.raises(CertificateError, match="no safetensors file of float32 numbers"):
        verify.read_weights(data)


def test_weights_are_read_as_safetensors_reads_them() -> None:
    tensors = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32([7.0])}
    found = verify.read_weights(save(tensors, {"note": "x"}))
    assert sorted(found) == ["a", "b"]
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_what_is_not_finite_guarantees_nothing(value: float) -> None:
    for name in ("end.weight", "end.bias"):
        weights, image = one_layer(0, 5)
        weights[name].ravel()[0] = value
        with pytest.raises(CertificateError, match="nothing is guaranteed"):
            verify.score_bound(ONE_LAYER, weights, image, 0.1)


def test_an_auditor_needs_numpy_alone_and_300_lines(given_one: Given) -> None:
    assert len(Path(verify.__file__).read_text().splitlines()) < 300
    code = "import sys, pathlib; from certood.verify import verify; verify(*map(pathlib.Path, sys.argv[1:]))\n"
    code += "print({name.split('.')[0] for name in sys.modules} & {'torch', 'safetensors', 'scipy', 'datasets'})"
    paths = [str(path) for path in (given_one.file, given_one.weights, given_one.image)]
    run = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_the_digests_are_plain_ones(given_one: Given) -> None:
    content = given_one.content
    assert content["weights_sha256"] == hashlib.sha256(given_one.weights.read_bytes()).hexdigest()
    assert content["image_file_sha256"] == hashlib.sha256(given_one.image.read_bytes()).hexdigest()


def test_a_network_that_is_no_recipes_has_no_certificate() -> None:
    for network in (nn.Linear(2, 2), nn.Sequential(nn.Flatten(), nn.GELU(), nn.Linear(4, 2))):
        with pytest.raises(CertificateError, match="certificates are for the networks of recipes"):
            architecture(network)
