"""Logit gaps with the last layer elided, eq. 6 and eq. 7: against their definitions, attacks, and a memory limit."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CLASSES, SHAPE, ZOO, architectures, assert_sound, excess, generator, images, member, points
from torch import Tensor, nn

import certood
from certood import Box, UnsupportedOperation, attacks, confidence_upper, logit_gaps, max_gap
from certood.bounds import score_upper
from certood.errors import BoxError, CertoodError, NoGuarantee


def forgotten(network: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same network without the memory of its last layer."""
    return lambda x: network(x) + 0.0


def gaps_of(logits: Tensor) -> Tensor:
    return logits[:, :, None] - logits[:, None, :]  # [N, K, K]


def confidence(logits: Tensor) -> Tensor:
    return logits.softmax(1).amax(1)


def mlp(classes: int = 4, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, classes)).double()


def vectors(count: int = 5, seed: int = 0) -> Tensor:
    return torch.rand(count, 6, generator=generator(seed), dtype=torch.float64)


# ---- definitions -----------------------------------------------------------------------------------------------------


def test_gaps_worked_by_hand() -> None:
    """f = (z1 + z2, z1 - z2) + (0, 1) on z1 in [0, 1], z2 in [2, 4]: f_1 - f_2 = 2 z2 - 1 in [3, 7].

    Without the elision it is u_1 - l_2 = 5 - (-3) = 8, and u_2 - l_1 = 0 - 2 = -2 instead of -3.
    """
    network = nn.Linear(2, 2)
    network.weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    network.bias.data = torch.tensor([0.0, 1.0])
    box = Box(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    assert logit_gaps(network, box).tolist() == [[[0.0, 7.0], [-3.0, 0.0]]]
    assert logit_gaps(forgotten(network), box).tolist() == [[[0.0, 8.0], [-2.0, 0.0]]]
    assert max_gap(network, box).item() == 7.0
    assert max_gap(forgotten(network), box).item() == 8.0
    assert confidence_upper(network, box).item() == pytest.approx(1 / (1 + np.exp(-7)))
    assert score_upper(network, box).item() == pytest.approx(7.0)


@pytest.mark.parametrize("elided", [True, False])
def test_gaps_equal_the_paper_s_formula(elided: bool) -> None:
    """max(W_k - W_l, 0) u + min(W_k - W_l, 0) l + b_k - b_l, or u_k - l_l, in numpy, one pair after the other."""
    network, box = mlp(), Box.around(vectors(), 0.2)
    weight, bias = (value.detach().numpy() for value in network[2].parameters())
    with torch.no_grad():
        features, logits = network[:2](box), network(box)
    found = logit_gaps(network if elided else forgotten(network), box).detach().numpy()
    for n in range(5):
        for k in range(4):
            for j in range(4):
                row = weight[k] - weight[j]
                expected = (
                    np.maximum(row, 0) @ features.upper[n].numpy() + np.minimum(row, 0) @ features.lower[n].numpy()
                ) + (bias[k] - bias[j])
                if not elided and k != j:
                    expected = float(logits.upper[n, k] - logits.lower[n, j])
                assert found[n, k, j] == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("elided", [True, False])
@pytest.mark.parametrize("block", [1, 40, 10**6])
def test_eq_6_and_eq_7_equal_their_definitions(elided: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the rows k go in several blocks, the last one incomplete."""
    network, box = mlp(classes=7), Box.around(vectors(), 0.2)
    network = network if elided else forgotten(network)
    whole = logit_gaps(network, box).detach()
    monkeypatch.setattr(certood.bounds.confidence, "BLOCK_NUMBERS", block)
    gaps = logit_gaps(network, box).detach()
    assert torch.allclose(gaps, whole, rtol=0, atol=1e-13)
    by_definition = np.max(-np.log(np.exp(-gaps.numpy()).sum(2)), axis=1)  # max_k -log sum_l exp(-gap_kl)
    assert np.allclose(confidence_upper(network, box).numpy(), np.exp(by_definition), rtol=1e-12)
    odds = np.exp(by_definition) / (1 - np.exp(by_definition))
    assert np.allclose(score_upper(network, box).numpy(), np.log(odds), rtol=1e-9)
    assert torch.allclose(max_gap(network, box).detach(), gaps.amax((1, 2)), rtol=0, atol=1e-13)
    assert (confidence_upper(network, box) <= max_gap(network, box).detach().exp() / 7 + 1e-12).all()  # eq. 7


@pytest.mark.parametrize("elided", [True, False])
def test_the_gradient_of_max_gap_is_that_of_the_naive_formula(elided: bool) -> None:
    network = mlp()
    lower, upper = vectors(seed=1) * 0.5, vectors(seed=1) * 0.5 + 0.3
    inputs = [lower.requires_grad_(), upper.requires_grad_(), *network.parameters()]

    def last(z: Any) -> Any:
        return network(z) if elided else network(z) + 0.0

    features = network[:2](Box.of(lower, upper))
    if elided:
        weight, bias = network[2].parameters()
        rows = weight[:, None, :] - weight  # [K, K, d]
        naive = torch.einsum("kld,nd->nkl", rows, features.centre) + bias[:, None] - bias
        naive = naive + torch.einsum("kld,nd->nkl", rows.abs(), features.radius)
    else:
        out = network[2](features)
        naive = (out.upper[:, :, None] - out.lower[:, None, :]) * (1 - torch.eye(4, dtype=torch.float64))
    expected = torch.autograd.grad(naive.amax((1, 2)).pow(2).sum(), inputs)
    found = torch.autograd.grad(max_gap(last, Box.of(lower, upper)).pow(2).sum(), inputs)
    for one, two in zip(found, expected, strict=True):
        assert torch.allclose(one, two, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda a, b: max_gap(last, Box.of(a, b)),
        (lower[:2].detach().requires_grad_(), upper[:2].detach().requires_grad_()),
    )


def test_huge_gaps_keep_a_finite_score() -> None:
    """Where the confidence is 1 to all digits its log-odds still tell bounds apart."""
    network = nn.Linear(2, 2)
    network.weight.data, network.bias.data = torch.tensor([[1e4, 0.0], [-1e4, 0.0]]), torch.zeros(2)
    box = Box.around(torch.tensor([[0.5, 0.5], [0.7, 0.5]]), 0.1)
    assert confidence_upper(network, box).tolist() == [1.0, 1.0]
    assert score_upper(network, box).tolist() == pytest.approx([12e3, 16e3], rel=1e-6)
    assert score_upper(network, box).dtype == torch.float64


@pytest.mark.parametrize("bound", [confidence_upper, logit_gaps])
def test_autocast_around_a_bound_does_not_round_it(bound: Any) -> None:
    network, box = mlp().float(), Box.around(vectors().float(), 0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = bound(network, box)
    assert torch.equal(rounded, bound(network, box))


def test_no_samples_no_bounds() -> None:
    network = mlp()
    for last in (network, forgotten(network)):
        assert confidence_upper(last, Box.around(vectors(0), 0.1)).shape == (0,)
        assert max_gap(last, Box.around(vectors(0), 0.1)).shape == (0,)


# ---- where the last linear layer is found ----------------------------------------------------------------------------


class Custom(nn.Module):
    """A linear layer by function, then one of several ways to end."""

    def __init__(self, end: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight, self.bias, self.end = nn.Parameter(torch.randn(4, 6).double()), nn.Parameter(torch.ones(4)), end

    def forward(self, x: Any) -> Any:
        return self.end(F.linear(x, self.weight, self.bias.double()))


def changed(change: str) -> Callable[[Any], Any]:
    def end(out: Any) -> Any:
        exec(change, {"out": out, "F": F})
        return out

    return end


FOUND: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda out: out,
    "Identity": nn.Identity(),
    "Dropout": nn.Dropout(0.5).eval(),
    "dropout by function": lambda out: F.dropout(out, 0.3, training=False),
    "something else of it in passing": lambda out: (F.relu(out), out)[1],
}
DROPPED: dict[str, Callable[[Any], Any]] = {
    "ReLU": nn.ReLU(),
    "ReLU in place": nn.ReLU(inplace=True),
    "scaled": lambda out: 2 * out,
    "view": lambda out: out.view(-1, 4),
    "part": lambda out: out[:, :3],
    "added in place": changed("out += 1"),
    "added in place to a part": changed("part = out[:, 1]; part += 3"),
    "scaled through a view": changed("flat = out.view(-1); flat *= -2"),
    "ReLU in place of a view": changed("F.relu(out.view(-1), inplace=True)"),
    "other columns": lambda out: out[:, [2, 1, 3, 0]],
    "joined": lambda out: F.pad(out, (0, 1)),
    "sum with itself": lambda out: out + out,
    "two halves": lambda out: certood_cat(out),
}


def certood_cat(out: Any) -> Any:
    return torch.cat(out.chunk(2, 1)[::-1], 1)


@pytest.mark.parametrize("name", FOUND)
def test_the_last_linear_layer_is_found(name: str) -> None:
    torch.manual_seed(0)
    network, box = Custom(FOUND[name]), Box.around(vectors(), 0.2)
    exact = (
        gaps_of(network(vectors()))
        + torch.einsum("kld,nd->nkl", (network.weight[:, None] - network.weight).abs(), box.radius)
        + gaps_of(F.linear(box.centre - vectors(), network.weight))
    )
    assert torch.allclose(logit_gaps(network, box), exact, rtol=1e-12, atol=1e-12)
    assert network(box).source is not None


@pytest.mark.parametrize("name", DROPPED)
def test_what_follows_the_linear_layer_drops_it(name: str) -> None:
    """The gaps are then u_k - l_l of what the network really answers, and hold for it."""
    torch.manual_seed(0)
    network, box = Custom(DROPPED[name]), Box.around(vectors(), 0.2)
    out = network(box)
    assert out.source is None
    off = ~torch.eye(out.shape[1], dtype=torch.bool)
    assert torch.equal(logit_gaps(network, box)[:, off], (out.upper[:, :, None] - out.lower[:, None, :])[:, off])
    assert_sound(network, box)
    bound = logit_gaps(network, box)
    for z in points(box):
        assert (gaps_of(network(z)) <= bound + 1e-12).all()


def test_features_changed_after_the_linear_layer_are_remembered_as_they_were() -> None:
    linear = nn.Linear(6, 4).double()

    def network(x: Any) -> Any:
        x = x * 1
        view = x.view(-1)
        out = linear(x)
        view *= 0
        F.relu(x, inplace=True)
        return out

    box = Box.around(vectors(), 0.2)
    assert torch.equal(logit_gaps(network, box), logit_gaps(linear, box))


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("view", ["x.view(-1)", "x[:, :3]", "x.detach()", "x.contiguous()", "x.double()"])
def test_features_changed_through_a_later_view_are_not_elided(view: str, inference: bool) -> None:
    """The layer's input had no views when it was used; one that comes later changes it all the same."""

    def network(x: Any) -> Any:
        x = x * 1
        out = linear(x)
        part = eval(view, {"x": x})
        part *= 0
        return out

    linear, box = nn.Linear(6, 4).double(), Box.around(vectors(), 0.2)
    with torch.inference_mode(inference):
        bound = logit_gaps(network, box)
        for z in points(box):
            assert (gaps_of(network(z)) <= bound + 1e-12).all()


def test_logits_of_a_layer_that_is_no_matrix_are_bounded_by_their_ends() -> None:
    box, weight = Box.around(vectors(), 0.2), torch.tensor([1.0, -1.0]).double()

    def network(x: Any) -> Any:
        return F.linear(x.view(-1, 3, 2), weight)

    assert network(box).source is None
    assert_sound(network, box)


@pytest.mark.parametrize("change", ["weight.mul_(-1)", "bias.copy_(torch.arange(4))"])
def test_weights_changed_after_their_use_are_not_elided(change: str) -> None:
    def network(x: Any) -> Any:
        values = {"weight": linear.weight.detach().clone(), "bias": linear.bias.detach().clone(), "torch": torch}
        out = F.linear(x, values["weight"], values["bias"])
        exec(change, values)
        return out

    linear, box = nn.Linear(6, 4).double(), Box.around(vectors(), 0.2)
    assert network(box).source is None
    bound = logit_gaps(network, box)
    for z in points(box):
        assert (gaps_of(network(z)) <= bound + 1e-12).all()


def test_a_network_that_changes_its_input_leaves_the_box_alone() -> None:
    linear = nn.Linear(6, 4).double()

    def network(x: Any) -> Any:
        x -= 0.5
        return linear(F.relu(x.view(-1, 6), inplace=True))

    x = vectors()
    lower, upper = x - 0.1, x + 0.1
    box = Box(lower, upper)
    first = confidence_upper(network, box)
    assert torch.equal(confidence_upper(network, box), first)
    assert torch.equal(lower, x - 0.1)
    assert torch.equal(upper, x + 0.1)


# ---- soundness -------------------------------------------------------------------------------------------------------


def assert_bounded(network: nn.Module, box: Box, steps: int = 8) -> None:
    """Points, corners and attacks on single logits, on gaps and on the confidence stay below every bound."""
    assert_sound(network, box, count=6)
    with torch.no_grad():
        gaps, loose = logit_gaps(network, box), logit_gaps(forgotten(network), box)
        largest, upper, score = max_gap(network, box), confidence_upper(network, box), score_upper(network, box)
        out = network(Box(box.lower.clone(), box.upper.clone()))
    tolerance = 1e-9 * (1 + float(loose.abs().max()))
    assert (gaps <= loose + tolerance).all()
    classes = out.shape[1]
    attacked = [
        attacks.maximise(objective, box, budget=[attacks.SignAscent(steps=steps)]).points
        for objective in (
            lambda z: network(z + 0.0)[:, 0],
            lambda z: -network(z + 0.0)[:, -1],
            lambda z: network(z + 0.0)[:, 1] - network(z + 0.0)[:, 0],
            lambda z: network(z + 0.0).log_softmax(1).amax(1),
        )
    ]
    with torch.no_grad():
        for z in [*points(box, 6), *attacked]:
            assert box.contains(z).all()
            logits = network(z.clone())
            assert excess(out, logits) <= 1e-9
            assert (gaps_of(logits) <= gaps + tolerance).all()
            assert (gaps_of(logits).amax((1, 2)) <= largest + tolerance).all()
            assert (confidence(logits) <= upper + 1e-9).all()
            top = logits.log_softmax(1).sort(1).values
            assert (top[:, -1] - top[:, :-1].logsumexp(1) <= score + tolerance).all()
    assert upper.min() >= 1 / classes - 1e-12


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("eps", [0.003, 0.1])
def test_the_zoo_stays_below_its_bounds(name: str, eps: float) -> None:
    assert_bounded(member(name), Box.around(images(), eps))


@pytest.mark.parametrize("name", ZOO)
def test_a_point_has_its_own_confidence(name: str) -> None:
    network, x = member(name), images()
    with torch.no_grad():
        logits = network(x.clone())
    assert torch.allclose(confidence_upper(network, Box(x, x)), confidence(logits), rtol=1e-11)
    assert torch.allclose(logit_gaps(network, Box(x, x)), gaps_of(logits), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ZOO)
def test_samples_do_not_depend_on_each_other(name: str) -> None:
    network, box = member(name), Box.around(images(), 0.02)
    together = logit_gaps(network, box)
    alone = torch.cat([logit_gaps(network, box.select(torch.tensor([n]))) for n in range(3)])
    assert torch.allclose(together, alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ZOO)
def test_training_reaches_every_parameter(name: str) -> None:
    network = member(name)
    max_gap(network, Box.around(images(), 0.05)).sum().backward()
    for parameter, value in network.named_parameters():
        assert value.grad is not None, parameter
        assert value.grad.isfinite().all(), parameter
    assert sum(float(value.grad.abs().sum()) for value in network.parameters()) > 0


@pytest.mark.parametrize("name", ZOO)
def test_a_larger_box_has_a_larger_bound(name: str) -> None:
    network, x = member(name), images()
    bounds = [logit_gaps(network, Box.around(x, eps)) for eps in (0.0, 0.01, 0.05, 0.3)]
    for smaller, larger in pairwise(bounds):
        assert (smaller <= larger + 1e-9 * (1 + larger.abs())).all()


@given(architectures(), st.sampled_from((0.0, 0.01, 0.1, 1.0)), st.integers(0, 100))
@settings(max_examples=25)
def test_random_architectures_stay_below_their_bounds(network: nn.Module, eps: float, seed: int) -> None:
    assert_bounded(network, Box.around(images(2, seed), eps), steps=4)


@pytest.mark.slow
@given(architectures(), st.sampled_from((0.001, 0.03, 0.3)), st.integers(0, 10**6))
@settings(max_examples=300)
def test_many_random_architectures_stay_below_their_bounds(network: nn.Module, eps: float, seed: int) -> None:
    assert_bounded(network, Box.around(images(2, seed), eps), steps=10)


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [logit_gaps, max_gap, confidence_upper, score_upper])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", ["0.weight", "0.bias", "2.weight", "2.bias"])
@pytest.mark.parametrize("elided", [True, False])
def test_weights_that_are_not_finite_give_no_number(bound: Any, value: float, place: str, elided: bool) -> None:
    """The one exception: ReLU(-inf) is 0 indeed, and a unit with that bias is off."""
    network = mlp()
    with torch.no_grad():
        network.get_parameter(place).view(-1)[1] = value
    if place == "0.bias" and value == -torch.inf:
        network[0].bias.data[1] = -1e9
        off = bound(network, Box.around(vectors(), 0.1))
        network[0].bias.data[1] = value
        assert torch.equal(bound(network, Box.around(vectors(), 0.1)), off)
        return
    with pytest.raises(NoGuarantee, match=r"NaN for 5 of 5 samples|infinite on a whole Box") as caught:
        bound(network if elided else forgotten(network), Box.around(vectors(), 0.1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bound", [logit_gaps, max_gap, confidence_upper])
@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda out: out.softmax(1), "softmax"),
        (lambda out: F.log_softmax(out, 1), "log_softmax"),
        (lambda out: (out, out), "it gave tuple"),
        (lambda out: out[:, :1], r"for N = 5 it gave \(5, 1\)"),
        (lambda out: out[:, 0], r"for N = 5 it gave \(5,\)"),
        (lambda out: out[:, :, None], r"for N = 5 it gave \(5, 4, 1\)"),
        (lambda out: out.view(10, 2), r"for N = 5 it gave \(10, 2\)"),
        (lambda out: out.mean(0, keepdim=True), r"for N = 5 it gave \(1, 4\)"),
        (lambda out: torch.zeros(5, 4), r"it gave \(5, 4\)"),
        (lambda out: None, "it gave NoneType"),
    ],
)
def test_what_is_no_box_of_logits_is_refused(bound: Any, end: Any, message: str) -> None:
    network = mlp()
    with pytest.raises(UnsupportedOperation, match=message) as caught:
        bound(lambda x: end(network(x)), Box.around(vectors(), 0.1))
    assert "\n" not in str(caught.value)


def test_networks_that_train_are_refused() -> None:
    for layer, message in ((nn.BatchNorm1d(6), r"network\.eval\(\)"), (nn.Dropout(), r"network\.eval\(\)")):
        network = nn.Sequential(layer, nn.Linear(6, 3)).double()
        with pytest.raises(CertoodError, match=message):
            max_gap(network, Box.around(vectors(), 0.1))
        assert max_gap(network.eval(), Box.around(vectors(), 0.1)).isfinite().all()


@pytest.mark.parametrize("bound", [logit_gaps, max_gap, confidence_upper, score_upper])
def test_a_bound_of_a_tensor_is_refused(bound: Any) -> None:
    with pytest.raises(BoxError, match=r"bounds are of a Box, not of a Tensor: give Box\.around\(x, eps\)"):
        bound(mlp(), vectors())


def test_nan_in_a_box_is_an_error_before_any_bound() -> None:
    with pytest.raises(BoxError, match="NaN"):
        confidence_upper(mlp(), Box(vectors(), vectors() * torch.nan))


# ---- size and speed --------------------------------------------------------------------------------------------------

MEMORY = """
import sys, torch
from pathlib import Path
from torch import nn
import certood
torch.set_num_threads(1)

def peak():  # megabytes
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

def run(classes, samples, width):
    network = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, classes))
    box = certood.Box.around(torch.rand(samples, 8), 0.1)
    last = network if sys.argv[1] == "elided" else lambda x: network(x) + 0.0
    certood.max_gap(last, box).sum().backward()
    certood.confidence_upper(last, box)

run(10, 4, 16)
Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
before = peak()
run(1000, 64, 512)
print(peak() - before)
"""


@pytest.mark.parametrize("way", ["elided", "u_k - l_l"])
def test_a_thousand_classes_fit_in_300_megabytes(way: str) -> None:
    """K = 1000, N = 64, d = 512: all rows W_k - W_l at once would take 2 GB, all gaps in float64 512 MB."""
    run = subprocess.run([sys.executable, "-c", MEMORY, way], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 300


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's compiler calls what torch deprecates
def test_compiled_in_one_graph_it_answers_the_same() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.norm, self.end = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 4, CLASSES)
            self.drop, self.leaky, self.cut = nn.Dropout(0.5), nn.LeakyReLU(0.1, True), nn.Hardtanh(-2, 2, inplace=True)

        def forward(self, x: Any) -> Any:
            identity = self.norm(self.one(2 * x - 1))
            x = self.leaky(identity * 1)
            x += identity
            x = F.max_pool2d(self.cut(F.gelu(x)), 2)
            x = F.interpolate(F.softplus(x / -2), None, 2, "bilinear")
            x = F.avg_pool2d(x, 4)
            return self.end(F.dropout(self.drop(torch.flatten(x, 1)), 0.3, False))

    torch.manual_seed(0)
    network, x = Network().eval(), torch.rand(3, *SHAPE)

    def gap(x: Tensor) -> Tensor:
        return max_gap(network, Box.around(x, 0.02))

    def upper(x: Tensor) -> Tensor:
        return confidence_upper(network, Box.around(x, 0.02))

    for function in (gap, upper):
        compiled = torch.compile(function, fullgraph=True)
        assert torch.allclose(compiled(x), function(x), rtol=0, atol=1e-5)
    network.zero_grad()
    torch.compile(gap, fullgraph=True)(x).sum().backward()
    compiled_grad = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    gap(x).sum().backward()
    for one, parameter in zip(compiled_grad, network.parameters(), strict=True):
        assert torch.allclose(one, parameter.grad, rtol=1e-4, atol=1e-5)
