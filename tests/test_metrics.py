"""Metrics are their O(N^2) definitions, intervals cover as often as they say, and nothing undefined is a number."""

import math
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from certood.errors import MetricError
from certood.metrics import (
    Forms,
    accuracy,
    accuracy_above,
    auc,
    aupr_in,
    aupr_out,
    bootstrap_interval,
    bootstrap_mean,
    confidences,
    conservative_auc,
    delong_interval,
    fpr_at_tpr,
    intervals,
    mean_confidence,
)

Scores = NDArray[np.float64]
Metric = Callable[..., float]
INF, NAN = math.inf, math.nan

# ---- definitions -----------------------------------------------------------------------------------------------------


def fpr_over_thresholds(ins: Scores, outs: Scores, tpr: float = 0.95) -> float:
    """The least FPR of all thresholds that accept enough: the FPR of the largest of them."""
    thresholds = [*ins, *outs]
    return min(float((outs >= t).mean()) for t in thresholds if (ins >= t).sum() >= tpr * ins.size - 1e-9)


def average_precision(wanted: Scores, others: Scores) -> float:
    """The mean, over the wanted samples, of the precision among all that rank as high or higher."""
    found = np.array([(wanted >= t).sum() for t in wanted])
    return float(np.mean(found / (found + np.array([(others >= t).sum() for t in wanted]))))


def wins(ins: Scores, outs: Scores, tie: float = 0.5) -> Scores:
    return (ins[:, None] > outs) + tie * (ins[:, None] == outs)  # [n, m]


DEFINITIONS: dict[Metric, Metric] = {
    auc: lambda ins, outs: wins(ins, outs).mean(),
    conservative_auc: lambda ins, outs: wins(ins, outs, tie=0).mean(),
    fpr_at_tpr: fpr_over_thresholds,
    aupr_in: average_precision,
    aupr_out: lambda ins, outs: average_precision(-outs, -ins),
}
each_metric = pytest.mark.parametrize("metric", DEFINITIONS, ids=lambda metric: metric.__name__)
small_scores = st.integers(-2, 3).map(float) | st.sampled_from([-INF, INF])
tied_scores = st.lists(small_scores, min_size=1, max_size=12).map(np.array)
two_or_more = tied_scores.filter(lambda scores: scores.size > 1)


def normal_scores(seed: int = 0, ins: int = 50, outs: int = 40, apart: float = 1.0) -> tuple[Scores, Scores]:
    draw = np.random.default_rng(seed)
    return draw.normal(apart, 1, ins), draw.normal(0, 1, outs)


# ---- in against out --------------------------------------------------------------------------------------------------


@each_metric
@given(tied_scores, tied_scores)
def test_every_metric_is_its_definition(metric: Metric, ins: Scores, outs: Scores) -> None:
    assert metric(ins, outs) == pytest.approx(DEFINITIONS[metric](ins, outs), abs=1e-12)


@given(tied_scores, tied_scores, st.integers(1, 20))
def test_fpr_at_any_tpr_is_that_of_the_best_threshold(ins: Scores, outs: Scores, twentieths: int) -> None:
    tpr = twentieths / 20  # often just as many as some threshold accepts
    assert fpr_at_tpr(ins, outs, tpr) == pytest.approx(fpr_over_thresholds(ins, outs, tpr), abs=1e-12)


@given(tied_scores, tied_scores)
def test_scikit_learn_agrees(ins: Scores, outs: Scores) -> None:
    rank = np.unique(np.concatenate([ins, outs]), return_inverse=True)[1]  # scikit-learn takes no infinity
    is_in = np.repeat([1, 0], [ins.size, outs.size])
    assert auc(ins, outs) == pytest.approx(roc_auc_score(is_in, rank))
    assert aupr_in(ins, outs) == pytest.approx(average_precision_score(is_in, rank))
    assert aupr_out(ins, outs) == pytest.approx(average_precision_score(1 - is_in, -rank))


@given(tied_scores, tied_scores)
def test_ties_count_half_for_auc_and_nothing_for_conservative_auc(ins: Scores, outs: Scores) -> None:
    assert auc(ins, outs) + auc(outs, ins) == pytest.approx(1)
    assert conservative_auc(ins, outs) <= auc(ins, outs)
    assert auc([0.0] * ins.size, [0.0] * outs.size) == 0.5
    assert conservative_auc([0.0] * ins.size, [0.0] * outs.size) == 0


@each_metric
@pytest.mark.parametrize("rise", [np.exp, np.arctan, lambda s: 7 * s - 3, lambda s: s**3])
@given(tied_scores, tied_scores)
def test_only_the_order_counts(metric: Metric, rise: Callable[[Scores], Scores], ins: Scores, outs: Scores) -> None:
    assert metric(rise(ins), rise(outs)) == metric(ins, outs)


@each_metric
@pytest.mark.parametrize("convert", [list, tuple, np.float32, torch.tensor, lambda s: np.array(s, np.int8)])
def test_any_column_of_numbers_will_do(metric: Metric, convert: Callable[[list[int]], object]) -> None:
    assert metric(convert([1, 2, 2, 5]), convert([0, 2, 4])) == metric([1.0, 2.0, 2.0, 5.0], [0.0, 2.0, 4.0])


def test_a_full_test_set_takes_less_than_50_ms() -> None:
    """Of the process's own time, and at best, so that a loaded machine does not matter."""
    ins, outs = normal_scores(0, 26_032, 10_000)
    times = timeit.repeat(lambda: conservative_auc(ins, outs), timer=time.process_time, number=1, repeat=20)
    assert min(times) < 0.050


def test_importing_metrics_does_not_load_torch() -> None:
    script = "import sys, certood.metrics; print(*{'torch', 'scipy', 'sklearn'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


# ---- intervals -------------------------------------------------------------------------------------------------------


@each_metric
def test_a_bootstrap_is_its_loop(metric: Metric) -> None:
    ins, outs = (scores.round(1) for scores in normal_scores(3))
    draw = np.random.default_rng(99)
    loop = [metric(draw.choice(ins, ins.size), draw.choice(outs, outs.size)) for _ in range(4000)]
    found = bootstrap_interval(metric, ins, outs, share=0.8, resamples=4000)
    assert found.value == metric(ins, outs)
    assert found.low < found.value < found.high
    step = 1 / outs.size if metric is fpr_at_tpr else 0  # that metric takes few values
    assert found[1:] == pytest.approx(np.quantile(loop, [0.1, 0.9]), abs=max(0.1 * np.std(loop), step))


def test_a_bootstrap_of_a_mean_is_that_of_its_normal_limit() -> None:
    right = np.arange(1000) % 4 > 0
    reach = NormalDist().inv_cdf(0.95) * math.sqrt(0.75 * 0.25 / 1000)
    found = bootstrap_mean(right, share=0.9, resamples=4000)
    assert found == pytest.approx((0.75, 0.75 - reach, 0.75 + reach), abs=0.1 * reach)


@pytest.mark.parametrize(
    "interval",
    [partial(bootstrap_interval, auc, *normal_scores()), partial(bootstrap_mean, normal_scores()[0])],
    ids=["auc", "mean"],
)
def test_an_interval_depends_on_its_seed_and_share_only(
    interval: Callable[..., intervals.Interval], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = interval(seed=5)
    assert found != interval(seed=6)
    wider = interval(seed=5, share=0.99)
    assert wider.low < found.low < found.high < wider.high
    monkeypatch.setattr(intervals, "BATCH", 630)  # 7 or 12 resamples at once, and fewer the last time
    assert found == interval(seed=5)


def test_a_bootstrap_passes_the_tpr_on() -> None:
    ins, outs = normal_scores()
    half = bootstrap_interval(fpr_at_tpr, ins, outs, tpr=0.5)
    assert half.value == fpr_at_tpr(ins, outs, tpr=0.5)
    assert half.high < bootstrap_interval(fpr_at_tpr, ins, outs).value


def test_separated_sets_and_sets_of_one_score_have_no_width() -> None:
    for ins, outs, value in (([2.0, INF], [0.0, 1.0], 1.0), ([0.0] * 3, [0.0] * 2, 0.5)):
        assert bootstrap_interval(auc, ins, outs) == (value, value, value)
        assert delong_interval(ins, outs) == (value, value, value)


@given(two_or_more, two_or_more, st.floats(0.05, 0.999))
def test_delong_is_its_quadratic_formula(ins: Scores, outs: Scores, share: float) -> None:
    pairs = wins(ins, outs)
    variance = pairs.mean(1).var(ddof=1) / ins.size + pairs.mean(0).var(ddof=1) / outs.size
    reach = NormalDist().inv_cdf((1 + share) / 2) * math.sqrt(variance)
    expected = pairs.mean(), max(0.0, pairs.mean() - reach), min(1.0, pairs.mean() + reach)
    assert delong_interval(ins, outs, share) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("interval", [delong_interval, partial(bootstrap_interval, auc, resamples=400)])
def test_the_true_auc_is_covered_as_often_as_promised(interval: Callable[..., intervals.Interval]) -> None:
    truth = NormalDist().cdf(1 / math.sqrt(2))
    found = [interval(*normal_scores(seed)) for seed in range(500)]
    assert 0.92 < np.mean([each.low <= truth <= each.high for each in found]) < 0.98


# ---- one set at a time -----------------------------------------------------------------------------------------------


def test_accuracy_of_all_and_of_the_accepted() -> None:
    labels, predictions, scores = [0, 1, 2, 3], np.array([0, 1, 0, 0], np.uint8), [INF, 1.0, 1.0, -2.0]
    assert accuracy(labels, predictions) == accuracy_above(labels, predictions, scores, -INF) == 0.5
    assert accuracy_above(labels, predictions, scores, 1.0) == pytest.approx(2 / 3)  # 1.0 itself is accepted
    assert accuracy_above(labels, predictions, scores, INF) == 1.0


def test_confidences_neither_overflow_nor_lose_digits() -> None:
    scores = np.linspace(-30, 30, 61)
    assert confidences(scores) == pytest.approx(1 / (1 + np.exp(-scores)), rel=1e-14)
    assert confidences([-INF, -1000, 0, 1000, INF]).tolist() == [0, 0, 0.5, 1, 1]
    assert confidences([-700.0])[0] == pytest.approx(math.exp(-700), rel=1e-14)
    assert mean_confidence([-1000, 0, INF]) == pytest.approx(0.5)


def test_forms_are_one_metric_of_three_columns() -> None:
    metric = partial(auc, [1.0, 3.0])
    found = Forms.of(metric, [0.0, 0.0, 2.0], [NAN, 2.0, 5.0], [2.0, INF, INF])
    assert found == Forms(
        clean=metric([0, 0, 2]), adversarial=metric([2, 5]), guaranteed=metric([2, INF, INF]), attacked=2
    )
    assert Forms.of(metric, [0.0], [NAN], [2.0]) == Forms(1.0, None, 0.5, attacked=0)
    whole = Forms.of(lambda out: bootstrap_interval(auc, [1.0, 3.0], out), [0.0], [NAN], [2.0])
    assert whole.guaranteed.low == 0.0  # a metric may be anything of a column


# ---- what is undefined -----------------------------------------------------------------------------------------------

TWO = [0.0, 1.0]
BAD_COLUMNS: dict[str, tuple[object, str]] = {
    "empty": ([], "is empty"),
    "nan": ([0.0, NAN, NAN], "holds 2 NaN, the first in row 1"),
    "matrix": ([[1.0, 2.0]], r"has shape \(1, 2\)"),
    "number": (1.0, r"has shape \(\)"),
    "ragged": ([[1.0], [1.0, 2.0]], "is no array of numbers"),
    "strings": (["1.0"], "holds <U3, not real numbers"),
    "complex": ([1j], "holds complex128, not real numbers"),
    "booleans": ([True], "holds bool, not real numbers"),
    "none": ([1.0, None], "holds object, not real numbers"),
    "gradient": (torch.ones(2, requires_grad=True), "is no array of numbers.*grad"),
}
PAIRS: list[Callable[..., object]] = [*DEFINITIONS, partial(bootstrap_interval, auc), delong_interval]
TAKERS: list[tuple[Callable[..., object], list[str]]] = [
    *((metric, ["in_scores", "out_scores"]) for metric in PAIRS),
    (mean_confidence, ["scores"]),
    (partial(accuracy_above, [0, 1], [0, 1], threshold=0.0), ["scores"]),
    (partial(Forms.of, np.mean, adversarial=TWO), ["score", "certified"]),
]


@pytest.mark.parametrize(("bad", "problem"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
@pytest.mark.parametrize(("taker", "columns"), TAKERS)
def test_a_bad_column_is_named(taker: Callable[..., object], columns: list[str], bad: object, problem: str) -> None:
    for name in columns:
        with pytest.raises(MetricError, match=f"^{name} {problem}"):
            taker(**{**dict.fromkeys(columns, TWO), name: bad})


@pytest.mark.parametrize(
    ("problem", "call"),
    [
        ("labels is empty", lambda: accuracy([], [])),
        ("labels holds float64, not whole numbers", lambda: accuracy([0.0], [0])),
        ("predictions holds <U3, not whole numbers", lambda: accuracy([0], ["cat"])),
        ("2 labels but 1 predictions", lambda: accuracy([0, 1], [0])),
        ("2 labels but 1 scores", lambda: accuracy_above([0, 1], [0, 1], [0.0], 0.0)),
        (r"no score reaches the threshold 2 \(largest: 1\)", lambda: accuracy_above([0, 1], [0, 1], TWO, 2.0)),
        ("no score reaches the threshold nan", lambda: accuracy_above([0, 1], [0, 1], TWO, NAN)),
        ("have 1, 2 and 1 rows", lambda: Forms.of(np.mean, [0.0], TWO, [0.0])),
        ("have 2, 2 and 1 rows", lambda: Forms.of(np.mean, TWO, TWO, [0.0])),
        ("adversarial holds <U1", lambda: Forms.of(np.mean, TWO, ["a", "b"], TWO)),
        ("no bootstrap for .*mean.* auc, conservative_auc", lambda: bootstrap_interval(np.mean, TWO, TWO)),
        ("2 samples on each side; there are 2 in and 1 out", lambda: delong_interval(TWO, [0.0])),
        ("values is empty", lambda: bootstrap_mean([])),
        ("values must be finite", lambda: bootstrap_mean([0.0, INF])),
        ("values must be finite", lambda: bootstrap_mean([0.0, NAN])),
        *((f"tpr .*; it is {tpr}", partial(fpr_at_tpr, TWO, TWO, tpr=tpr)) for tpr in (0.0, 1.1, NAN)),
        ("tpr .*; it is 2", lambda: bootstrap_interval(fpr_at_tpr, TWO, TWO, tpr=2)),
        *(
            (f"{name} .*; it is {value}", partial(interval, **{name: value}))
            for interval in (partial(bootstrap_interval, auc, TWO, TWO), partial(bootstrap_mean, TWO))
            for name, value in (("share", 0.0), ("share", 1.0), ("share", NAN), ("resamples", 0), ("seed", -1))
        ),
        *((f"share .*; it is {share}", partial(delong_interval, TWO, TWO, share)) for share in (0.0, 1.0)),
    ],
)
def test_undefined_is_an_error_that_names_the_problem(problem: str, call: Callable[[], object]) -> None:
    with pytest.raises(MetricError, match=problem):
        call()
