"""From a Box of logits to what the paper bounds and trains: logit gaps, their largest, the confidence.

If the network ends in a linear layer f = W z + b, the gap of two logits is bounded with that layer elided:

    f_k - f_l <= (W_k - W_l) c + b_k - b_l + |W_k - W_l| r          for all z in [c - r, c + r]           (eq. 5)

which is never above u_k - l_l. The Box remembers its linear layer; where it does not, u_k - l_l is what is left.
There are K^2 gaps of d products each, so everything that reduces them goes through the rows k in blocks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from certood.bounds.precision import full_precision, plain_sums, refuse_reduced_precision
from certood.bounds.rounding import UNIT, SoundBox, logit_errors, size_of
from certood.boxes import Box
from certood.errors import BoxError, NoGuarantee, UnsupportedOperation

Network = Callable[[Any], Any]

BLOCK_NUMBERS = 1_000_000  # numbers held at once by a block of rows: 4 MB in float32


def logit_gaps(network: Network, box: Box, sound: bool = False) -> Tensor:
    """Upper bounds of f_k - f_l over the box.  # [N, K, K]

    `sound=True`: of the logits as they are executed in float32 (docs/soundness.md), +inf where nothing is guaranteed.
    """
    with _sound(box) if sound else full_precision(_box(box).device):
        if not sound:
            return _checked(torch.cat([gaps for _, gaps in _blocks(_logits(network, box))], dim=1))
        return _upward(torch.cat([gaps for _, gaps in _blocks(_logits(network, SoundBox.enclosing(box)))], dim=1))


def max_gap(network: Network, box: Box, sound: bool = False) -> Tensor:
    """max over k, l of the bounds of f_k - f_l: what training minimises (eq. 7 without its log K).  # [N]

    The pair is searched without gradients and its gap computed again with them, so that memory does not grow with K^2.
    `sound=True` is as in `logit_gaps`, without gradients.
    """
    if sound:
        return logit_gaps(network, box, sound=True).amax((1, 2))
    out = _logits(network, _box(box))
    with torch.no_grad():
        top, bottom = _largest_pair(out)
    if out.source is None:
        gap = _take(out.upper, top) - _take(out.lower, bottom)
    else:
        features, weight, bias = out.source[:3]
        logits = F.linear(features.centre, weight, bias)
        reach = (weight[top] - weight[bottom]).abs()  # [N, d]
        gap = _take(logits, top) - _take(logits, bottom) + (reach * features.radius).sum(1)
    return _checked(gap)


def confidence_upper(network: Network, box: Box, sound: bool = False) -> Tensor:
    """An upper bound of the confidence max_k p_k over the box, eq. 6; not differentiable (train on `max_gap`).  # [N]

    max log p_k  <=  max_k -log sum_l exp(-gap_kl)

    `sound=True`: of the confidence as it is executed, softmax in float32 included; 1 where nothing is guaranteed.
    """
    score, classes = _upper(network, box, sound)
    if not sound:
        return score.sigmoid().to(box.dtype)
    softmax = (2 * classes + 96) * UNIT  # exp twice, within 20 ulp where torch is in a hurry, a sum and a quotient
    return _upward(score.sigmoid() * (1 + softmax)).clamp(max=1)


def score_upper(network: Network, box: Box, sound: bool = False) -> Tensor:
    """Eq. 6 as log-odds of the confidence, in float64, where a confidence near 1 does not saturate.  # [N]

    confidence <= 1 / (1 + s),  s = sum over l != k of exp(-gap_kl),  so the log-odds are at most -log s

    `sound=True`: for every float32 z in the box `Softmax(network).score(z)`, as it is executed, is at most this; +inf
    where nothing is guaranteed. docs/soundness.md states the theorem and proves it.
    """
    return _upper(network, box, sound)[0]


@torch.no_grad()
def score_lower(network: Network, box: Box, sound: bool = False) -> Tensor:
    """A lower bound of the log-odds of the confidence: whoever accepts it accepts the whole box.  # [N]

    The confidence is at least p_j of any class j, and the log-odds of p_j at least -log sum over l != j of exp(gap_lj)

    `sound=True` as in `score_upper`; -inf where nothing is guaranteed. Above 0 the answer is the same class everywhere.
    """
    with _sound(box) if sound else full_precision(_box(box).device):
        out = _logits(network, SoundBox.enclosing(box) if sound else box)
        total = out.lower.new_full(out.shape, -torch.inf, dtype=torch.float64)  # [N, K]
        for start, gaps in _blocks(out):
            others = gaps.double()  # [N, block, K]
            _set_diagonal(others, start, -torch.inf)
            total = torch.logaddexp(total, others.logsumexp(1))
        least = -total.amin(1)
    if not sound:
        return _checked(least)
    least = least - _score_errors(out)
    return torch.where(least.isnan(), -torch.inf, least)


@torch.no_grad()
def _upper(network: Network, box: Box, sound: bool) -> tuple[Tensor, int]:
    """Score bound and number of classes."""
    best = _box(box).lower.new_full((len(box.lower),), -torch.inf, dtype=torch.float64)
    with _sound(box) if sound else full_precision(box.device):
        out = _logits(network, SoundBox.enclosing(box) if sound else box)
        for start, gaps in _blocks(out):
            negated = -gaps.double()  # [N, block, K]
            _set_diagonal(negated, start, -torch.inf)  # l = k
            best = torch.maximum(best, -negated.logsumexp(2).amin(1))  # [N]
    if not sound:
        return _checked(best), out.shape[1]
    best = best + _score_errors(out)
    return torch.where(best.isnan(), torch.inf, best), out.shape[1]


@contextmanager
def _sound(box: Box) -> Iterator[None]:
    refuse_reduced_precision(_box(box).device)
    with torch.no_grad(), plain_sums(box.device):
        yield


def _score_errors(out: Box) -> Tensor:
    """What float64 may add from logits to score, here and where the score is executed.  # [N]"""
    errors: Tensor = 2.0**-49 * (out.shape[1] + 32 + 16 * size_of(out).amax(1))
    return errors


def _upward(bound: Tensor) -> Tensor:
    """To float32, never down; +inf for NaN."""
    near = bound.float()
    near = torch.where(near.double() < bound, torch.nextafter(near, torch.full_like(near, torch.inf)), near)
    return torch.where(bound.isnan(), torch.inf, near)


def _box(given: Any) -> Box:
    if not isinstance(given, Box):
        raise BoxError(f"bounds are of a Box, not of a {type(given).__name__}: give Box.around(x, eps)")
    return given


def _logits(network: Network, box: Box) -> Box:
    out = network(type(box).of(box.lower.clone(), box.upper.clone()))  # a network may change its input in place
    if not isinstance(out, Box) or out.ndim != 2 or out.shape[0] != box.shape[0] or out.shape[1] < 2:
        form = tuple(out.shape) if hasattr(out, "shape") else type(out).__name__
        raise UnsupportedOperation(
            f"the network must answer a Box of N images with a Box of logits [N, K], K >= 2; for N = {box.shape[0]} it "
            f"gave {form}"
        )
    if not torch.compiler.is_compiling() and bool(((out.lower == torch.inf) | (out.upper == -torch.inf)).any()):
        raise NoGuarantee("a logit is infinite on a whole Box: the weights of the network are not finite")
    return out


def _blocks(out: Box) -> Iterator[tuple[int, Tensor]]:
    """(first row k, bounds of f_k - f_l for a block of rows k and all l)."""  # [N, block, K]
    samples, classes = out.shape
    errors = logit_errors(out) if isinstance(out, SoundBox) else None  # [N, K]
    if out.source is None:
        size = max(1, BLOCK_NUMBERS // (classes * max(1, samples)))
        for start in range(0, classes, size):
            gaps = out.upper[:, start : start + size, None] - out.lower[:, None, :]
            yield start, _with_errors(gaps, start, errors)
        return
    features, weight, bias = out.source[:3]
    if errors is not None:
        weight, bias = weight.double(), None if bias is None else bias.double()
    logits, radius = F.linear(features.centre, weight, bias), features.radius  # [N, K], [N, d]
    size = max(1, BLOCK_NUMBERS // (classes * max(weight.shape[1], samples)))
    for start in range(0, classes, size):
        reach = weight[start : start + size, None, :] - weight  # [block, K, d]
        reach = reach.abs() if torch.is_grad_enabled() else reach.abs_()
        spread = (radius @ reach.flatten(0, 1).T).reshape(samples, len(reach), classes)
        gaps = logits[:, start : start + size, None] - logits[:, None, :] + spread
        yield start, _with_errors(gaps, start, errors)


def _with_errors(gaps: Tensor, start: int, errors: Tensor | None) -> Tensor:
    """Each of two executed logits may be off by its error; f_k - f_k is 0, which u_k - l_k does not know."""
    if errors is not None:
        gaps += errors[:, start : start + gaps.shape[1], None] + errors[:, None, :]
    return _set_diagonal(gaps, start, 0)


def _set_diagonal(gaps: Tensor, start: int, value: float) -> Tensor:
    rows = torch.arange(gaps.shape[1], device=gaps.device)
    gaps[:, rows, start + rows] = value
    return gaps


def _largest_pair(out: Box) -> tuple[Tensor, Tensor]:
    """Per sample the k and l of the largest gap.  # [N] each"""
    best: list[Tensor] = []
    for start, first, gaps, swapped in _pairs(out):
        largest, position = gaps.flatten(1).max(1)
        top, bottom = start + position // gaps.shape[2], first + position % gaps.shape[2]
        if swapped is not None:
            other = _take(swapped.flatten(1), position)
            top, bottom = torch.where(other, bottom, top), torch.where(other, top, bottom)
        found = [largest, top, bottom]
        if best:
            better = ~(largest <= best[0])  # also where it is NaN
            found = [torch.where(better, new, old) for new, old in zip(found, best, strict=True)]
        best = found
    _, top, bottom = best
    return top, bottom


def _pairs(out: Box) -> Iterator[tuple[int, int, Tensor, Tensor | None]]:
    """(first row k, first column l, gaps, where it is f_l - f_k that they bound). Without gradients.

    |W_k - W_l| r is the same for both differences of a pair, so that the larger of them is this plus |f_k - f_l| of the
    centre, and the columns l from the block's first row on are all that is needed: half of the products.
    """
    if out.source is None:
        yield from ((start, 0, gaps, None) for start, gaps in _blocks(out))
        return
    features, weight, bias = out.source[:3]
    logits, radius, (samples, classes) = F.linear(features.centre, weight, bias), features.radius, out.shape
    size = max(1, BLOCK_NUMBERS // (classes * max(weight.shape[1], samples)))
    for start in range(0, classes, size):
        reach = torch.sub(weight[start : start + size, None, :], weight[start:]).abs_()  # [block, K - start, d]
        spread = (radius @ reach.flatten(0, 1).T).reshape(samples, len(reach), classes - start)
        difference = logits[:, start : start + size, None] - logits[:, None, start:]
        yield start, start, spread + difference.abs(), difference < 0


def _take(values: Tensor, column: Tensor) -> Tensor:
    return values.gather(1, column[:, None]).squeeze(1)


def _checked(bound: Tensor) -> Tensor:
    if not torch.compiler.is_compiling() and bool(bound.isnan().any()):
        samples = int(bound.isnan().flatten(1).any(1).sum() if bound.ndim > 1 else bound.isnan().sum())
        raise NoGuarantee(
            f"the bound is NaN for {samples} of {len(bound)} samples: its weights or activations are not finite"
        )
    return bound
