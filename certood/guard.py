"""`load`: a trained run as it is deployed. It says which class an image is of, whether to believe that, and what of it
holds for every image nearby."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certood.assembly import detector_of
from certood.bounds import plain_sums
from certood.boxes import Box
from certood.calibration import Calibration
from certood.certificates import certificate
from certood.detectors import Detector, Softmax, log_odds
from certood.errors import BrokenInvariant, GuardError
from certood.images import Form, Images, coerce
from certood.locks import locked
from certood.recipes import Recipe
from certood.runs import Run, digest

BATCH = 64  # images computed together; the largest network of the recipes then needs about 500 MB for a bound
STEPS = 16  # halvings of [0, 1] by `radius`: to 1.5e-5, where one level of an 8-bit image is 3.9e-3
SIGMOID = 2.0**-50  # more than what float64's sigmoid may be wrong by, relatively

_GPU = Lock()  # how a GPU computes is a setting of the whole process, and guards of several threads change it

# Arrays of the answers are torch tensors if the images were one, on its device, else numpy arrays.
Answer = Any


class Prediction(NamedTuple):
    labels: Answer  # [N] int64
    confidences: Answer  # [N] float64
    accepted: Answer | None  # [N] bool; None before calibration


class Certified(NamedTuple):
    """What holds for every image z within eps of the one given, |z - x|_inf <= eps, z in [0, 1]."""

    confidences: Answer  # [N] float64, of the images themselves
    lower: Answer  # [N]; no z has a confidence below
    upper: Answer  # [N]; no z has a confidence above
    rejected: Answer | None  # [N] bool: no z is accepted; None before calibration
    accepted: Answer | None  # [N] bool: every z is accepted; None before calibration


@final
class Guard:
    """A detector, the form of its images, and a threshold once it is calibrated.

    Guards may be shared between threads: nothing is kept from one call to the next but the calibration, which is
    replaced as a whole.
    """

    def __init__(
        self,
        detector: Detector,
        form: Form,
        weights: str,
        device: torch.device,
        class_names: tuple[str, ...] = (),
        recipe: Recipe | None = None,
        folder: Path | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """`weights` is their digest; `folder`, if any, is where a calibration is kept."""
        self.detector, self.form, self.weights, self.device = detector, form, weights, device
        self.class_names, self.recipe, self.folder, self.calibration = class_names, recipe, folder, calibration

    def predict(self, images: Any) -> Prediction:
        """The class of each image, how sure the detector is of it, and whether that reaches the threshold."""
        given, calibration = coerce(images, self.form), self.calibration
        labels, scores = self._looked_at(given)
        accepted = None if calibration is None else scores >= calibration.threshold
        return Prediction(*(_like(given, part) for part in (labels, scores.sigmoid(), accepted)))

    def certify(self, images: Any, eps: Any) -> Certified:
        """Bounds of the confidence over all images within eps (one number, or one an image), and what follows."""
        given, calibration = coerce(images, self.form), self.calibration
        radii = self._radii(eps, len(given))
        scores, lower, upper = self._parts(3)
        with self._computing():
            for x in given.batches(BATCH, self.device):
                start = sum(map(len, scores))
                box = around(x, radii[start : start + len(x)])
                scores.append(self.detector.score(x.float()))
                lower.append(self.detector.score_lower(box))
                upper.append(self.detector.score_upper(box))
        score, low, high = (torch.cat(part) for part in (scores, lower, upper))
        if self.detector.sound and not bool(((low <= score) & (score <= high)).all()):
            raise BrokenInvariant(
                f"a confidence of {float(score.sigmoid()[~((low <= score) & (score <= high))][0])!r} lies outside its "
                "proved bounds: please report it with the run"
            )
        rejected = None if calibration is None else high < calibration.threshold
        accepted = None if calibration is None else low >= calibration.threshold
        least = low.sigmoid() * (1 - SIGMOID)
        most = (high.sigmoid() * (1 + SIGMOID)).clamp(max=1)
        return Certified(*(_like(given, part) for part in (score.sigmoid(), least, most, rejected, accepted)))

    def radius(self, images: Any) -> Answer:
        """The largest eps, to 1.5e-5, for which no image within eps is accepted; 0 where there is none.  # [N] float64

        What is returned lies inside a box whose bound was below the threshold. 0 says nothing: the image may be
        accepted itself, or everything around it may be rejected without a proof.
        """
        given, threshold = coerce(images, self.form), self._threshold()
        found = self._parts(1)[0]
        with self._computing():
            found += [self._reach(x, threshold) for x in given.batches(BATCH, self.device)]
        return _like(given, torch.cat(found))

    def calibrate(self, images: Any, accept: float = 0.95) -> Calibration:
        """Set the threshold on in-distribution images that training has not seen, and keep it in the run folder.

        `certood.calibration` states what is guaranteed; `.statement` of the answer says it in words.
        """
        with nullcontext() if self.folder is None else locked(self.folder, "calibrating"):
            _, scores = self._looked_at(coerce(images, self.form))
            calibration = Calibration.of(scores.cpu().numpy(), accept, self.weights)
            if self.folder is not None:
                calibration.write(self.folder)
        self.calibration = calibration
        return calibration

    def certificate(self, image: Path | str, eps: float) -> dict[str, Any]:
        """What is guaranteed for one image file, to be written by `certood.certificates.write_certificate`.

        Others check it with `certood verify`, which needs neither this library's bounds nor torch.
        """
        if not isinstance(self.detector, Softmax):
            kind = {"Joint": "a ProoD", "Mixture": "a CCU"}.get(type(self.detector).__name__, "this")
            raise GuardError(f"certificates are of the bounds of one network; {kind} run's are made of more")
        if self.folder is None:
            raise GuardError("a certificate is for a run that was loaded with certood.load")
        given, radius = coerce([image], self.form), float(self._radii(eps, 1)[0])
        pixels = next(given.batches(1, torch.device("cpu")))[0].float().numpy()
        threshold = None if self.calibration is None else self.calibration.threshold
        weights, network = Run(self.folder).weights, self.detector.network
        with self._computing():
            return certificate(weights, network, pixels, radius, threshold, Path(image))

    def scores(self, images: Any) -> NDArray[np.float64]:
        """Log-odds of the confidences, which rank without saturating.  # [N]"""
        scores: NDArray[np.float64] = self._looked_at(coerce(images, self.form))[1].cpu().numpy()
        return scores

    def _looked_at(self, given: Images) -> tuple[Tensor, Tensor]:
        """Labels and scores."""  # [N] int64, [N] float64
        labels, scores = self._parts(2)
        with self._computing():
            for x in given.batches(BATCH, self.device):
                log_probs = self.detector.log_probs(x.float())
                labels.append(log_probs.argmax(1))
                scores.append(log_odds(log_probs))
        return torch.cat(labels).long(), torch.cat(scores)

    def _reach(self, x: Tensor, threshold: float) -> Tensor:  # [n]
        """Bisection with a radius for each image; `certain` is always a radius whose box was rejected as a whole."""

        def rejected(rows: Tensor, eps: Tensor) -> Tensor:
            return self.detector.score_upper(around(x[rows], eps)) < threshold

        every = torch.arange(len(x), device=x.device)
        certain, doubtful = (torch.full((len(x),), value, dtype=torch.float64, device=x.device) for value in (0.0, 1.0))
        some = every[rejected(every, certain)]
        if len(some):
            everywhere = rejected(some, doubtful[some])
            certain[some[everywhere]] = 1.0
            some = some[~everywhere]
        for _ in range(STEPS if len(some) else 0):
            middle = (certain[some] + doubtful[some]) / 2
            holds = rejected(some, middle)
            certain[some] = torch.where(holds, middle, certain[some])
            doubtful[some] = torch.where(holds, doubtful[some], middle)
        # Half a step back: asked again, in another batch, the bound may come out larger by what float32 sums differ.
        return torch.where((certain > 0) & (certain < 1), certain - 2.0 ** -(STEPS + 1), certain)

    def _threshold(self) -> float:
        calibration = self.calibration
        if calibration is None:
            raise GuardError(
                "there is no threshold yet: calibrate on in-distribution images that training has not seen, with "
                "guard.calibrate(images) or certood calibrate RUN --data DIR"
            )
        return calibration.threshold

    def _radii(self, eps: Any, count: int) -> Tensor:  # [N] float64
        try:
            given = np.asarray(eps.detach().cpu().double() if isinstance(eps, Tensor) and not eps.is_complex() else eps)
            if given.dtype.kind not in "iufO":  # no truth values, complex numbers, dates or words
                raise TypeError
            radii = torch.from_numpy(np.array(given, np.float64, order="C")).to(self.device)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            told = " ".join(repr(eps).split())[:80]
            raise GuardError(f"eps is a number, or one for each image, not {told}") from None
        if radii.ndim == 0:
            radii = radii.repeat(count)
        if radii.shape != (count,):
            raise GuardError(
                f"eps has shape {list(radii.shape)} where there are {count} images: one number, or one each"
            )
        wrong = radii[~((radii >= 0) & (radii <= 1))]
        if len(wrong):
            raise GuardError(
                f"eps is between 0 and 1, in units of the [0, 1] pixel range, not {wrong[0]:g}; divide 8-bit steps by "
                "255"
            )
        return radii

    @contextmanager
    def _computing(self) -> Iterator[None]:
        alone: AbstractContextManager[object] = _GPU if self.device.type == "cuda" else nullcontext()
        with torch.no_grad(), alone, plain_sums(self.device):
            yield

    def _parts(self, count: int) -> list[list[Tensor]]:
        return [[torch.empty(0, dtype=torch.float64, device=self.device)] for _ in range(count)]


def load(run: Path | str, device: str = "auto") -> Guard:
    """The guard of a finished run, with its calibration if it has one. Nothing in the folder can run code."""
    guard = uncalibrated(run, device)
    if guard.folder is not None:
        guard.calibration = Calibration.read(guard.folder, guard.weights)
    return guard


def uncalibrated(run: Path | str, device: str = "auto") -> Guard:
    """The guard of a finished run, whatever calibration is kept there."""
    folder = Path(run)
    if device not in ("auto", "cpu", "cuda"):
        raise GuardError(f"the device is auto, cpu or cuda, not {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise GuardError("no CUDA device is here; leave it out, or take cpu")
    place = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    trained = Run(folder).load()
    weights = digest(trained.network.state_dict())
    form = Form(trained.recipe.channels, trained.recipe.size)
    return Guard(detector_of(trained, place), form, weights, place, trained.class_names, trained.recipe, folder)


def around(x: Tensor, eps: Tensor) -> Box:
    """A float32 box that holds every float32 image z in [0, 1] with |z - x| <= eps, x and eps as float64 says them.

    And every float64 image nearby, once it is rounded to float32: rounding is monotone. Two ulps of float64 cover what
    the subtraction and eps = k/255 lose.
    """
    radius = eps.reshape(-1, 1, 1, 1)
    margin = 2.0**-51
    lower, upper = ((x - radius) - margin).clamp(min=0), ((x + radius) + margin).clamp(max=1)
    lower, upper = torch.where(radius > 0, lower, x), torch.where(radius > 0, upper, x)
    down, up = lower.float(), upper.float()
    infinity = torch.tensor(torch.inf, device=x.device)
    down = torch.where((down.double() > lower) & (radius > 0), torch.nextafter(down, -infinity), down)
    up = torch.where((up.double() < upper) & (radius > 0), torch.nextafter(up, infinity), up)
    return Box(down, up)


def _like(given: Images, part: Tensor | None) -> Answer:
    if part is None:
        return None
    return part.cpu().numpy() if given.device is None else part.to(given.device)
