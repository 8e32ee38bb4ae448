"""A deployed run: what it answers, what it guarantees, where its threshold comes from, and many threads at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_detectors import Linear
from test_locks import holder

import certood
from certood.boxes import Box
from certood.data.sources import load as load_set
from certood.detectors import Softmax
from certood.errors import BrokenInvariant, GuardError, Held, ImageError
from certood.guard import STEPS, Guard, around, load
from certood.images import Form

FORM = Form(1, 4)


def linear(seed: int = 0) -> Guard:
    return Guard(Linear(seed), FORM, "w", torch.device("cpu"))


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 1, 4, 4))


@pytest.fixture(scope="module")
def good(runs: Path) -> Path:
    (runs / "good" / "calibration.json").unlink(missing_ok=True)
    return runs / "good"


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    return load_set("demo_digits", "test", folder=None, channels=1, size=28).images(np.arange(150))


@pytest.fixture(scope="module")
def photos() -> np.ndarray:
    return load_set("demo_photos", "test", folder=None, channels=1, size=28).images(np.arange(70))


def test_predictions_are_the_networks_own(good: Path, digits: np.ndarray) -> None:
    guard = certood.load(good)
    found = guard.predict(digits)
    network = certood.runs.Run(good).load().network
    with torch.no_grad():
        probabilities = network(torch.from_numpy(digits).float() / 255).double().softmax(1)
    assert np.array_equal(found.labels, probabilities.argmax(1).numpy())
    assert np.allclose(found.confidences, probabilities.amax(1).numpy(), atol=1e-6)
    assert found.accepted is None
    assert isinstance(guard, certood.Guard)


def test_what_is_accepted_follows_the_calibration(good: Path, digits: np.ndarray) -> None:
    guard = load(good)
    calibration = guard.calibrate(digits, accept=0.9)
    accepted = guard.predict(digits).accepted
    assert accepted.sum() == len(digits) - calibration.rank + 1
    assert load(good).calibration == calibration
    assert np.array_equal(load(str(good)).predict(digits).accepted, accepted)


def test_a_calibration_of_other_weights_is_refused(good: Path, runs: Path, digits: np.ndarray, tmp_path: Path) -> None:
    import shutil

    load(good).calibrate(digits, accept=0.9)
    copy = Path(shutil.copytree(runs / "oe", tmp_path / "oe"))
    shutil.copy(good / "calibration.json", copy)
    with pytest.raises(GuardError, match="made for other weights"):
        load(copy)


def test_bounds_hold_at_the_exact_worst_corner() -> None:
    guard, x = linear(), drawn(50)
    guard.calibrate(drawn(200, 1))
    for eps in (0.0, 0.003, 0.1, 1.0):
        found = guard.certify(x, eps)
        weight = guard.detector.weight.numpy()  # type: ignore[attr-defined]
        worst = np.where(weight > 0, np.minimum(x + eps, 1), np.maximum(x - eps, 0))
        at = guard.predict(worst)
        assert (found.upper >= at.confidences).all()
        assert (found.confidences <= found.upper).all()
        assert not (found.rejected & at.accepted).any()
        assert np.array_equal(found.lower, np.zeros(50))  # this detector has no lower bound
        assert not found.accepted.any()
    assert linear().certify(x, 0.1).rejected is None


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.2])
def test_points_of_the_box_keep_the_promise(good: Path, digits: np.ndarray, photos: np.ndarray, eps: float) -> None:
    guard = load(good)
    guard.calibrate(digits, accept=0.9)
    x = np.concatenate([digits[:40], photos[:40]]) / 255
    found = guard.certify(x, eps)
    draw = np.random.default_rng(0)
    for z in (x, *(np.clip(x + eps * draw.choice((-1, 1), x.shape), 0, 1) for _ in range(5))):
        seen = guard.predict(z)
        assert (seen.confidences <= found.upper).all()
        assert (seen.confidences >= found.lower).all()
        assert not (seen.accepted & found.rejected).any()
        assert (seen.accepted | ~found.accepted).all()
    if eps == 0:
        assert (found.rejected | found.accepted).mean() > 0.9


def test_the_radius_is_certified_and_no_larger_one_is() -> None:
    guard, x = linear(), drawn(200)
    guard.calibrate(drawn(999, 1), accept=0.3)  # most are rejected
    radii = guard.radius(x)
    found = radii > 0
    assert found.any()
    assert (~found).any()
    assert guard.certify(x[found][::-1], radii[found][::-1]).rejected.all()  # in another order, so in another batch
    less_than_all = found & (radii < 1)
    assert not guard.certify(x[less_than_all], np.minimum(1, radii[less_than_all] + 2.0 ** (1 - STEPS))).rejected.any()
    assert not guard.certify(x[~found], 2.0**-STEPS).rejected.any()


def test_a_radius_of_a_trained_run(good: Path, digits: np.ndarray, photos: np.ndarray) -> None:
    guard = load(good)
    guard.calibrate(digits, accept=0.9)
    radii = guard.radius(photos)
    some = radii > 0
    assert some.any()
    assert guard.certify(photos[some][::-1].copy(), radii[some][::-1].copy()).rejected.all()


def test_a_detector_without_bounds_guarantees_nothing() -> None:
    guard = Guard(Linear(wrong=float("inf")), FORM, "w", torch.device("cpu"))
    guard.calibrate(drawn(99), 0.5)
    assert (guard.radius(drawn(9)) == 0).all()
    found = guard.certify(drawn(9), 0.0)
    assert not found.rejected.any()
    assert (found.upper == 1).all()


def test_what_would_be_nan_is_no_guarantee() -> None:
    guard = Guard(Linear(wrong=float("nan")), FORM, "w", torch.device("cpu"))
    guard.calibrate(drawn(99), 0.5)
    assert not guard.certify(drawn(9), 0.1).rejected.any()
    assert (guard.radius(drawn(9)) == 0).all()


def test_only_one_process_calibrates_a_run(good: Path, digits: np.ndarray) -> None:
    guard = load(good)
    with holder(good) as other:
        with pytest.raises(Held, match="another process is calibrating in"):
            guard.calibrate(digits, accept=0.9)
        other.kill()
    guard.calibrate(digits, accept=0.9)
    assert load(good).calibration == guard.calibration


def test_before_calibration() -> None:
    with pytest.raises(GuardError, match="calibrate on in-distribution images"):
        linear().radius(drawn(2))


NO_RADII = (
    *(-0.1, 1.5, 8, float("nan"), "0.1x", "0.1", None, [0.1, 0.2], np.full((2, 2), 0.1), True, [True] * 3),
    *(torch.tensor(0.1 + 1j), torch.empty((), device="meta"), torch.tensor([0.1] * 3).to_sparse()),
)


@pytest.mark.parametrize("eps", NO_RADII, ids=str)
def test_a_radius_that_is_none(eps: Any) -> None:
    with pytest.raises(GuardError, match="eps") as told:
        linear().certify(drawn(3), eps)
    assert len(str(told.value).splitlines()) == 1


def test_answers_are_what_the_images_were() -> None:
    guard = linear()
    guard.calibrate(torch.from_numpy(drawn(50)), 0.9)
    five = drawn(5)
    for images, kind in ((torch.from_numpy(five), torch.Tensor), (five, np.ndarray), (list(five), np.ndarray)):
        for answer in (*guard.predict(images), *guard.certify(images, 0.1), guard.radius(images)):
            assert isinstance(answer, kind)
            assert len(answer) == 5
    trained = torch.from_numpy(drawn(5)).requires_grad_()
    assert not guard.predict(trained).confidences.requires_grad
    assert torch.is_grad_enabled()
    for answer in (*guard.predict(drawn(0)), *guard.certify(drawn(0), 0.1), guard.radius(drawn(0))):
        assert len(answer) == 0


def test_an_error_leaves_gradients_on() -> None:
    guard = linear()
    bad = drawn(200)
    bad[-1] = np.nan
    with pytest.raises(ImageError) as caught:
        guard.predict(bad)
    assert torch.is_grad_enabled(), caught


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = []
    guard = linear()
    own = guard.detector.log_probs

    def watched(x: torch.Tensor) -> torch.Tensor:
        largest.append(len(x))
        return own(x)

    monkeypatch.setattr(guard.detector, "log_probs", watched)
    together = guard.predict(drawn(1000)).confidences
    assert max(largest) <= 64
    alone = [guard.predict(image).confidences for image in drawn(1000)]
    assert np.allclose(together, np.concatenate(alone))


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8),
    st.floats(0, 1) | st.sampled_from([8 / 255, 1 / 255, 0.3, 0.03, 1e-9, 2.0**-149]),
    st.sampled_from(["float32", "float64", "uint8"]),
)
def test_the_box_holds_every_number_within_eps(values: list[float], eps: float, kind: str) -> None:
    """In rational arithmetic: each float32 next to the ends that is within eps lies inside."""
    x = torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1, 1)
    if kind == "uint8":
        x = (x * 255).round() / 255
    box = around(x, torch.full((len(x),), eps, dtype=torch.float64))
    assert box.contains(x.float()).all()
    if eps == 0:
        assert torch.equal(box.lower, x.float())
        assert torch.equal(box.upper, x.float())
        return
    for value, low, high in zip(x.flatten().tolist(), box.lower.flatten(), box.upper.flatten(), strict=True):
        for end, toward in ((low, -torch.inf), (high, torch.inf)):
            outside = Fraction(float(torch.nextafter(end, torch.tensor(toward))))
            assert outside < 0 or outside > 1 or abs(outside - Fraction(value)) > Fraction(eps)


def test_the_box_holds_every_eight_bit_image_within_a_whole_number_of_levels() -> None:
    levels = torch.arange(256, dtype=torch.float64)
    for step in range(256):
        box = around((levels / 255).reshape(-1, 1, 1, 1), torch.full((256,), step / 255, dtype=torch.float64))
        for sign in (-1, 1):
            neighbours = (levels + sign * step).clamp(0, 255).float() / 255  # as predict rounds them
            assert box.contains(neighbours.reshape(-1, 1, 1, 1)).all()


def test_many_threads_get_the_same_answers(good: Path, digits: np.ndarray, photos: np.ndarray) -> None:
    guard = load(good)
    guard.calibrate(digits, accept=0.9)
    jobs = [digits[:50], photos[:50], digits[50:100], photos[20:70]] * 6

    def ask(images: np.ndarray) -> tuple[Any, ...]:
        return (*guard.predict(images), *guard.certify(images, 0.02), guard.radius(images[:5]))

    alone = [ask(images) for images in jobs[:4]] * 6
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, jobs))
    for one, other in zip(alone, together, strict=True):
        for left, right in zip(one, other, strict=True):
            assert np.array_equal(left, right)


def test_a_calibration_is_replaced_as_a_whole_under_many_readers() -> None:
    guard = linear()
    halves = [guard.calibrate(drawn(200, seed), 0.5) for seed in (1, 2)]
    thresholds = {half.threshold for half in halves}

    def ask(number: int) -> None:
        if number % 5 == 0:
            guard.calibrate(drawn(200, 1 + number % 2), 0.5)
        seen = guard.predict(drawn(20))
        possible = [guard.scores(drawn(20)) >= threshold for threshold in thresholds]
        assert any(np.array_equal(seen.accepted, one) for one in possible)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(100)))


def test_loading_does_not_touch_the_random_state(good: Path) -> None:
    before = torch.random.get_rng_state()
    load(good)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import certood; print(time.perf_counter() - t)"
    quickest = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert quickest < 2


def test_a_device_that_is_not_there(good: Path) -> None:
    with pytest.raises(GuardError, match="auto, cpu or cuda"):
        load(good, "tpu")
    if not torch.cuda.is_available():
        with pytest.raises(GuardError, match="no CUDA device"):
            load(good, "cuda")


def test_softmax_bounds_both_ways() -> None:
    """Exact for one linear layer with two classes: the worst corner of either side is known."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2)).double().requires_grad_(False)
    detector, x = Softmax(network), torch.rand(30, 1, 4, 4, dtype=torch.float64)
    box = Box.around(x, 0.05)
    gap = network[1].weight[0] - network[1].weight[1]
    difference = torch.tensor([1.0, -1.0]).double()
    corners = [torch.where((sign * gap > 0).reshape(1, 1, 4, 4), box.upper, box.lower) for sign in (1, -1)]
    ends = [network(corner) @ difference for corner in corners]
    assert torch.allclose(detector.score_upper(box), torch.maximum(ends[0], -ends[1]))
    assert torch.allclose(detector.score_lower(box), torch.maximum(ends[1], -ends[0]))


def test_bounds_that_are_broken_are_told() -> None:
    detector = Linear(wrong=-1.0)
    detector.sound = True
    with pytest.raises(BrokenInvariant, match="outside its proved bounds"):
        Guard(detector, FORM, "w", torch.device("cpu")).certify(drawn(3), 0.0)
