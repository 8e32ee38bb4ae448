"""Files as somebody might damage or forge them, and everything of certood that reads a file.

    python tests/fuzzing.py 100000          # so many mutated files, from every reader in turn

A reader may do with a file what it likes, but what comes out of it is an answer or a `CertoodError`.
"""

import gzip
import io
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import scipy.io
import torch
from hypothesis import strategies as st
from invented import invent
from PIL import Image

from certood import networks, verify
from certood.calibration import Calibration
from certood.certificates import certificate, write_certificate
from certood.data import encoded, formats
from certood.errors import CertoodError
from certood.images import Form, coerce
from certood.recipes import recipe
from certood.report.evaluated import read
from certood.runs import Run
from certood.scores import Scores
from certood.settings import Recipe

MEMORY = 24 << 30  # bytes of address space: who asks for more because a file says so has escaped
PATIENCE = 20.0  # seconds for one file

Reader = Callable[[Path], object]


class Target(NamedTuple):
    """A kind of file: good ones, where it lies, and what reads it."""

    seeds: list[bytes]
    path: Path
    read: Reader


# ---- mutations -------------------------------------------------------------------------------------------------------

STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.0, -0.0, 1e308, 1e-320, float("nan"), float("inf")),
    *("", "..", "../..", "/etc/passwd", "a\0b", "x" * 5000, "\ud800", "1e5", "NaN", "é", [], {}, [[]], [0] * 50),
    *({"": None}, {"__metadata__": {}}, [-1, 10**9, 10**9], [1, 2, "3"]),
]
NUMBERS = [b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff" * 8, b"\x7f" + b"\xff" * 7]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """One to four changes: in the structure where it is JSON, in the bytes elsewhere."""
    for _ in range(draw.randint(1, 4)):
        data = _json(data, draw) if draw.random() < 0.5 else _bytes(data, draw)
    return data


def _json(data: bytes, draw: random.Random) -> bytes:
    """Also the JSON in the head of a safetensors file, its length put right."""
    start = 8 if data[8:9] == b"{" and len(data) > 8 else 0
    length = int.from_bytes(data[:8], "little") if start else len(data)
    try:
        content = json.loads(data[start : start + length])
        text = json.dumps(_changed(content, draw), indent=draw.choice((None, 2)), ensure_ascii=False).encode()
    except (ValueError, UnicodeError, RecursionError):
        return _bytes(data, draw)
    return (len(text).to_bytes(8, "little") + text if start else text) + data[start + length :]


def _changed(content: Any, draw: random.Random) -> Any:
    if isinstance(content, dict) and content and draw.random() < 0.85:
        key = draw.choice(list(content))
        kind = draw.random()
        if kind < 0.1:
            return {name: value for name, value in content.items() if name != key}
        if kind < 0.2:
            return content | {draw.choice(("..", "x", "")): content[key]}
        return content | {key: _changed(content[key], draw)}
    if isinstance(content, list) and content and draw.random() < 0.85:
        place = draw.randrange(len(content))
        return [*content[:place], _changed(content[place], draw), *content[place + draw.randint(0, 1) :]]
    if isinstance(content, int | float) and not isinstance(content, bool) and draw.random() < 0.5:
        return content * draw.choice((-1, 0, 2, 10**9))
    return draw.choice(STRANGE)


def _bytes(data: bytes, draw: random.Random) -> bytes:
    place, kind = draw.randint(0, max(0, len(data) - 1)), draw.randrange(7)
    if draw.random() < 0.5:
        place = min(place, draw.randrange(300))  # headers are at the beginning
    if kind == 0:
        return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
    if kind == 1 and data:
        return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]
    if kind == 2:
        return data[:place]
    if kind == 3:
        return data[:place] + data[place + draw.randint(1, 64) :]
    if kind == 4:
        return data[:place] + data[max(0, place - draw.randint(1, 64)) :]
    value = draw.choice(NUMBERS)
    return data[:place] + value + data[place + (len(value) if kind == 5 else 0) :]


# ---- readers ---------------------------------------------------------------------------------------------------------


def targets(folder: Path) -> dict[str, Target]:
    """Every kind of file that certood reads, in small."""
    network = networks.build("XS", 1, 8, 3)
    run = Run(folder / "run")
    run.create(_tiny())
    run.finish(network.state_dict(), ("a", "b", "c"), "# card\n")
    Calibration.of(np.linspace(-3, 9, 200), 0.9, "w").write(run.folder)
    return {
        "recipe": Target([run.folder.joinpath("recipe.json").read_bytes()], run.folder / "recipe.json", _run),
        "weights": Target([run.weights.read_bytes()], run.weights, _run),
        "calibration": Target(
            [(run.folder / "calibration.json").read_bytes()], run.folder / "calibration.json", _calibration
        ),
        "checkpoint": _checkpoint(folder),
        **_certified(folder, network, run.weights),
        **_pictures(folder),
        **_scored(folder),
        **_arrays(folder),
    }


def _tiny() -> Recipe:
    return replace(recipe("demo"), network="XS", size=8)


def _run(path: Path) -> object:
    return Run(path.parent).load()


def _calibration(path: Path) -> object:
    found = Calibration.read(path.parent, "w")
    return found and (found.statement, found.confidence)


def _checkpoint(folder: Path) -> Target:
    run = Run(folder / "unfinished")
    run.create(_tiny())
    network = networks.build("XS", 1, 8, 3)
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    network(torch.rand(2, 1, 8, 8)).sum().backward()
    optimiser.step()
    state = {"step": 3, "digests": ["a"], "network": network.state_dict(), "optimiser": optimiser.state_dict()}
    state |= {"sums": torch.zeros(4), "seconds": 1.5, "uniform_epochs": 0, "rows": [{"epoch": 1}]}
    run.write_state(state)
    return Target([run.state.read_bytes()], run.state, lambda path: run.read_state(torch.device("cpu")))


def _certified(folder: Path, network: torch.nn.Module, weights: Path) -> dict[str, Target]:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    image, file = folder / "seven.png", folder / "seven.json"
    Image.fromarray(pixels).save(image)
    array = pixels[None].astype(np.float32) / np.float32(255)
    write_certificate(file, certificate(weights, network.eval(), array, 0.1, 1.0, image))
    good = file.read_bytes()
    kept = folder / "kept.safetensors"
    shutil.copy(weights, kept)

    def forged(path: Path) -> object:
        """Its digest put right, as a forger would."""
        with suppress(ValueError, KeyError, TypeError, UnicodeError, RecursionError):
            path.write_bytes(verify.written(verify.sealed(json.loads(path.read_bytes()))))
        return verify.verify(path, kept, image)

    return {
        "certificate": Target([good], folder / "damaged.json", lambda path: verify.verify(path, kept, image)),
        "forged certificate": Target([good], folder / "forged.json", forged),
        "weights for the auditor": Target(
            [kept.read_bytes()], folder / "audit.safetensors", lambda path: _bound(json.loads(good), path, array)
        ),
        "image for the auditor": Target(
            [image.read_bytes(), _npy(array)], folder / "audit.npy", lambda path: verify.read_image(path, (1, 8, 8))
        ),
        "picture for the auditor": Target(
            [image.read_bytes()], folder / "audit.png", lambda path: verify.read_image(path, (1, 8, 8))
        ),
    }


def _bound(content: dict[str, Any], weights: Path, image: Any) -> float:
    found = verify.read_weights(weights.read_bytes())
    return verify.score_bound(content["architecture"], found, image, 0.1)


def _npy(array: Any) -> bytes:
    text = io.BytesIO()
    np.save(text, array)
    return text.getvalue()


def _pictures(folder: Path) -> dict[str, Target]:
    seeds = []
    for mode, shape in (("L", (8, 8)), ("RGB", (8, 8, 3))):
        image = Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, np.uint8), mode)
        for kind in ("PNG", "JPEG", "BMP", "PPM", "TIFF", "WEBP", "GIF", "EPS"):
            text = io.BytesIO()
            image.save(text, kind)
            seeds.append(text.getvalue())

    def guarded(path: Path) -> object:
        form = Form(1, 8) if path.stat().st_size % 2 else Form(3, 8)
        return list(coerce([path], form).batches(1, torch.device("cpu")))

    return {
        "image for a guard": Target(seeds, folder / "image.png", guarded),
        "image of a set": Target(seeds, folder / "set.png", lambda path: encoded._pixels(path.read_bytes(), "a")),
    }


def _scored(folder: Path) -> dict[str, Target]:
    invent(folder / "scores", ("good100",), ("uniform_noise",), rows=20, attacked=8)
    scores = Scores(folder / "scores" / "good100")
    table, meta = scores.file(0.3, "uniform_noise").path, scores.folder / "meta.json"
    points = scores.file(0.3, "uniform_noise").points

    def whole(path: Path) -> object:
        for run in read(folder / "scores"):
            for eps, name in run.outside:
                run.points(eps, name), run.images(eps, name)
        return None

    return {
        "scores": Target([table.read_bytes()], table, whole),
        "meta of scores": Target([meta.read_bytes()], meta, whole),
        "worst points": Target([points.read_bytes()], points, whole),
    }


def _arrays(folder: Path) -> dict[str, Target]:
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (5, 8, 8), np.uint8), np.arange(5, dtype=np.uint8)
    packed, loose = io.BytesIO(), io.BytesIO()
    np.savez_compressed(packed, images=images, labels=labels)
    np.savez(loose, images=images, labels=labels)
    idx = b"\0\0\x08\x03" + b"".join(int(n).to_bytes(4, "big") for n in images.shape) + images.tobytes()
    cifar = draw.integers(0, 10, 2 * 3073, np.uint8).tobytes()
    mat = io.BytesIO()
    for compress in (False, True):
        content = {"X": draw.integers(0, 256, (32, 32, 3, 2), np.uint8), "y": np.array([[1], [10]])}
        scipy.io.savemat(mat, content, do_compression=compress)

    def reading(reader: Callable[[Path], formats.Source]) -> Reader:
        return lambda path: [source := reader(path), source.length and source.read(np.arange(min(2, source.length)))]

    return {
        "npz": Target([packed.getvalue(), loose.getvalue()], folder / "a.npz", reading(formats.npz)),
        "npy": Target([_npy(images)], folder / "a.npy", reading(formats.npy)),
        "idx": Target([idx], folder / "a-idx3-ubyte", reading(lambda path: formats.idx([path]))),
        "idx.gz": Target([gzip.compress(idx)], folder / "a-idx3-ubyte.gz", reading(lambda path: formats.idx([path]))),
        "cifar": Target([cifar], folder / "data_batch_1.bin", reading(lambda path: formats.cifar([path]))),
        "mat": Target([mat.getvalue()], folder / "a.mat", reading(formats.svhn_mat)),
    }


# ---- the run ---------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    answered: int
    refused: int  # with a CertoodError
    escaped: list[str]  # anything else, as tracebacks
    slowest: float  # seconds


def attempt(target: Target, count: int, seed: int) -> Outcome:
    """`count` mutated files of one kind, drawn by hypothesis; the good file lies there again afterwards."""
    seen, escaped, seconds = Counter[str](), list[str](), [0.0]
    before = target.path.read_bytes() if target.path.is_file() else None

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        phases=[hypothesis.Phase.generate],  # what escapes is collected, all of it, and so not shrunk
        suppress_health_check=list(hypothesis.HealthCheck),
        database=None,
        deadline=None,
        derandomize=False,
    )
    @hypothesis.given(st.builds(mutated, st.sampled_from(target.seeds), st.randoms(use_true_random=False)))
    def read(data: bytes) -> None:
        target.path.write_bytes(data)
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                target.read(target.path)
            seen["answered"] += 1
        except CertoodError as error:
            seen["refused"] += 1
            if not str(error).strip():
                escaped.append(f"no words for {data[:200]!r}")
        except Exception:
            escaped.append(f"{traceback.format_exc()}\n{data[:300]!r}")
        seconds.append(time.perf_counter() - start)

    read()
    if before is not None:
        target.path.write_bytes(before)
    return Outcome(seen["answered"], seen["refused"], escaped, max(seconds))


def main() -> None:
    total, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        kinds = targets(Path(folder))
        each = -(-total // len(kinds))
        print(f"| file | mutated | answered | CertoodError | anything else | slowest |\n{'| --- ' * 6}|")
        for name, target in kinds.items():
            found = attempt(target, each, seed)
            failed |= bool(found.escaped) or found.slowest > PATIENCE
            escaped = len(found.escaped)
            row = f"{name} | {each} | {found.answered} | {found.refused} | {escaped} | {found.slowest:.2f} s"
            print(f"| {row} |", flush=True)
            last = Counter(text.strip().splitlines()[-2 if "\n" in text else -1][:150] for text in found.escaped)
            for line, times in last.most_common(6):
                print(
                    f"    {times} x {line}\n{next(text for text in found.escaped if line in text)[-1500:]}",
                    file=sys.stderr,
                )
        print(f"\n{each * len(kinds)} mutated files, seed {seed}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
