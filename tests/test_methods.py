"""Every method keeps one contract, and each equals its formula written another way."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from strategies import generator
from torch import Tensor, nn

from certood import discriminators, networks
from certood.assembly import method_of, optimiser_of
from certood.bounds import Box, logit_gaps, max_gap
from certood.building import network_of
from certood.detectors import Softmax
from certood.discriminators import Discriminated
from certood.errors import RecipeError
from certood.methods import ACET, CCU, CEDA, GOOD, METHODS, OE, Discriminator, Method, Plain, ProoD
from certood.mixtures import JointDensity, fit
from certood.recipes import Recipe, recipe

EXAMPLES: list[Method] = [
    *(Plain(), OE(), CEDA(), ACET(steps=4), CCU(), Discriminator(), ProoD()),
    *(GOOD(q) for q in (0.0, 0.3, 1.0)),
]
OUT = [method for method in EXAMPLES if method.uses_out]


def problem(method: Method | None = None) -> tuple[Softmax, Tensor, Tensor, Tensor]:
    """Logits of a network as the method trains it, images and labels, out-images."""
    torch.manual_seed(0)
    network: nn.Module = networks.build("XS", channels=1, size=8, classes=4)
    x, labels, x_out = torch.rand(10, 1, 8, 8), torch.randint(4, (10,)), torch.rand(7, 1, 8, 8)
    if isinstance(method, Discriminator):
        return Softmax(discriminators.build("DS", 1, 8)), x, torch.zeros_like(labels), x_out
    if isinstance(method, ProoD):
        network = Discriminated(network, discriminators.build("DS", 1, 8), 4)
        network.fix(3.0)
    if isinstance(method, CCU):
        network = JointDensity(network, 3, 64, 4)
        fit(network, torch.rand(200, 1, 8, 8), torch.rand(200, 1, 8, 8) / 2, generator())
    return Softmax(network), x, labels, x_out


def learning(network: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in network.parameters() if weight.requires_grad]


def total(method: Method, detector: Softmax, x: Tensor, labels: Tensor, x_out: Tensor, eps: float = 0.05) -> Tensor:
    return method.in_loss(detector, x, labels)[0].mean() + 0.5 * method.out_loss(detector, x_out, eps).mean()


# ---- the contract ----------------------------------------------------------------------------------------------------


def test_every_method_is_an_example() -> None:
    assert {type(method) for method in EXAMPLES} == set(METHODS.values())


@pytest.mark.parametrize("method", EXAMPLES, ids=repr)
@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_losses_are_per_sample_and_finite(method: Method, eps: float) -> None:
    detector, x, labels, x_out = problem(method)
    in_loss, log_probs = method.in_loss(detector, x, labels)
    out_loss = method.out_loss(detector, x_out, eps)
    assert in_loss.shape == (10,)
    assert out_loss.shape == (7,)
    assert in_loss.isfinite().all()
    assert out_loss.isfinite().all()
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(10, dtype=torch.float64))


@pytest.mark.parametrize("method", EXAMPLES, ids=repr)
def test_a_sample_pays_the_same_alone(method: Method) -> None:
    if isinstance(method, GOOD) and 0 < method.quantile < 1:
        pytest.skip("a quantile is a property of the batch")
    detector, _, _, x_out = problem(method)
    together = method.out_loss(detector, x_out, 0.05)
    alone = torch.cat([method.out_loss(detector, x_out[i : i + 1], 0.05) for i in range(7)])
    assert torch.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("method", EXAMPLES, ids=repr)
def test_the_gradient_reaches_every_parameter(method: Method) -> None:
    detector, x, labels, x_out = problem(method)
    total(method, detector, x, labels, x_out).backward()
    for name, weight in detector.network.named_parameters():
        if not weight.requires_grad:  # of a part that is trained before
            assert weight.grad is None
            continue
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().sum() > 0, name


@pytest.mark.parametrize("method", OUT, ids=repr)
def test_the_out_loss_alone_reaches_the_first_layer(method: Method) -> None:
    detector, _, _, x_out = problem(method)
    method.out_loss(detector, x_out, 0.0005).mean().backward()
    assert learning(detector.network)[0].grad.abs().sum() > 0


@pytest.mark.parametrize("method", EXAMPLES, ids=repr)
def test_the_loss_falls(method: Method) -> None:
    detector, x, labels, x_out = problem(method)
    optimiser = torch.optim.Adam(learning(detector.network), 3e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = total(method, detector, x, labels, x_out, eps=0.005)  # random images cannot be told apart any farther
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    # A density moves as slowly as its means, and a small discriminator cannot tell random images apart as well.
    assert losses[-1] < (0.95 if isinstance(method, CCU | Discriminator) else 0.8) * losses[0]


@pytest.mark.parametrize("method", EXAMPLES, ids=repr)
def test_the_bound_is_sound_after_training(method: Method) -> None:
    detector, x, labels, x_out = problem(method)
    optimiser = torch.optim.Adam(learning(detector.network), 3e-3)
    for _ in range(10):
        optimiser.zero_grad()
        total(method, detector, x, labels, x_out).backward()
        optimiser.step()
    trained = method.detector(detector.network.double())
    box = Box.around(x_out.double(), 0.05)
    with torch.no_grad():
        upper = trained.score_upper(box)
        for seed in range(50):
            assert (trained.score(box.sample(generator(seed))) <= upper + 1e-9).all()


@pytest.mark.parametrize("method", [method for method in OUT if type(method) in (OE, ACET, CEDA, GOOD)], ids=repr)
def test_the_uniform_answer_is_free(method: Method) -> None:
    detector, _, _, x_out = problem()
    nn.init.zeros_(detector.network[-1].weight)
    nn.init.zeros_(detector.network[-1].bias)
    least = {"OE": math.log(4), "ACET": math.log(4), "CEDA": -math.log(4), "GOOD": 0.0}[type(method).__name__]
    assert torch.allclose(method.out_loss(detector, x_out, 0.05).double(), torch.tensor(least).double())


# ---- formulas --------------------------------------------------------------------------------------------------------


def test_oe_and_ceda_by_hand() -> None:
    detector, _, _, x_out = problem()
    p = torch.softmax(detector.network(x_out).double(), 1).detach().numpy()
    assert np.allclose(OE().out_loss(detector, x_out, 0.1).detach(), -np.log(p).mean(1))
    assert np.allclose(CEDA().out_loss(detector, x_out, 0.1).detach(), np.log(p.max(1)))


def naive_cub(network: nn.Module, x: Tensor, eps: float) -> Tensor:
    """eq. 8 from all K^2 gaps."""
    gaps = logit_gaps(network, Box.around(x, eps, cut=False)).flatten(1).amax(1)
    return torch.log(gaps**2 / 2 + 1)


@pytest.mark.parametrize("quantile", [0.0, 0.2, 0.5, 0.85, 1.0])
def test_good_by_its_definition(quantile: float) -> None:
    """eq. 10: sort by the potential loss; the floor(q M) cheapest pay it, the others pay the loss at eps = 0."""
    detector, _, _, x_out = problem()
    potential = naive_cub(detector.network, x_out, 0.05)
    clean = naive_cub(detector.network, x_out, 0.0)
    expected = clean.clone()
    cheapest = potential.argsort()[: math.floor(quantile * 7)]
    expected[cheapest] = potential[cheapest]
    assert torch.allclose(GOOD(quantile).out_loss(detector, x_out, 0.05), expected, atol=1e-5)
    gradients = []
    for loss in (GOOD(quantile).out_loss(detector, x_out, 0.05), expected):
        detector.network.zero_grad()
        loss.mean().backward(retain_graph=True)
        gradients.append(torch.cat([w.grad.flatten() for w in detector.network.parameters()]))
    assert torch.allclose(*gradients, atol=1e-5)


def test_quantile_counts_do_not_suffer_from_binary_fractions() -> None:
    bounds = torch.rand(128)
    counts = [int(GOOD(q).guaranteed(bounds).sum()) for q in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)]
    assert counts == [0, 25, 51, 76, 102, 115, 121, 128]
    assert GOOD(0.29).guaranteed(bounds[:100]).sum() == 29
    assert GOOD(0.5).guaranteed(torch.zeros(10)).tolist() == [True] * 5 + [False] * 5  # ties by position
    with pytest.raises(RecipeError, match="quantile"):
        GOOD(80)


def test_the_quantile_is_that_of_the_whole_batch_when_processes_share_it() -> None:
    bounds = torch.rand(12)
    shares = [
        GOOD(0.6, gather=lambda own, first=first: (bounds, slice(first, first + 4))).guaranteed(
            bounds[first : first + 4]
        )
        for first in (0, 4, 8)
    ]
    assert torch.equal(torch.cat(shares), GOOD(0.6).guaranteed(bounds))


class Counting(nn.Module):
    """How many samples go through clean, and how many as boxes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.clean, self.boxes = network, 0, 0

    def forward(self, x: Tensor | Box) -> Tensor | Box:
        if isinstance(x, Box):
            self.boxes += len(x.lower)
        else:
            self.clean += len(x)
        return self.network(x)


@pytest.mark.parametrize(
    ("quantile", "eps", "clean", "boxes"),
    [(1.0, 0.05, 0, 7), (1.0, 0.0, 7, 0), (0.0, 0.05, 7, 0), (0.6, 0.05, 3, 7 + 4)],
)
def test_good_computes_nothing_that_cannot_matter(quantile: float, eps: float, clean: int, boxes: int) -> None:
    detector, _, _, x_out = problem()
    counting = Counting(detector.network)
    GOOD(quantile).out_loss(Softmax(counting), x_out, eps)
    assert (counting.clean, counting.boxes) == (clean, boxes)


@pytest.mark.parametrize("method", OUT, ids=str)
@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_both_losses_together_are_those_of_each(method: Method, eps: float) -> None:
    detector, x, labels, x_out = problem(method)
    together = method.losses(detector, x, labels, x_out, eps)
    alone = (*method.in_loss(detector, x, labels), method.out_loss(detector, x_out, eps))
    for one, two in zip(together, alone, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_the_quantile_loss_is_that_of_its_formula_and_so_are_the_gradients() -> None:
    """The easy samples' interval pass takes its numbers from the pass that chose them."""
    detector, _, _, x_out = problem()
    method, weights, found = GOOD(0.6), list(detector.network.parameters()), []
    for way in ("kept", "formula"):
        if way == "kept":
            loss = method.out_loss(detector, x_out, 0.05)
        else:
            bounds, logits = max_gap(detector.network, Box.around(x_out, 0.05, cut=False)), detector.network(x_out)
            easy = bounds <= bounds.sort().values[3]  # floor(0.6 * 7) = 4 of them
            loss = torch.log1p(torch.where(easy, bounds, logits.amax(1) - logits.amin(1)).square() / 2)
        found.append((loss, *torch.autograd.grad(loss.mean(), weights)))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-7)


def test_acet_attacks_inside_the_box_and_never_does_worse_than_the_image() -> None:
    detector, _, _, x_out = problem()
    detector.network[-1].weight.data *= 30  # fresh weights are nearly flat
    clean = OE().out_loss(detector, x_out, 0)
    attacked = ACET(steps=10).out_loss(detector, x_out, 0.05)
    assert (attacked >= clean - 1e-9).all()
    assert attacked.mean() > clean.mean() * 1.005


# ---- recipes ---------------------------------------------------------------------------------------------------------


PAPER = [(name, method) for name in ("mnist", "svhn", "cifar10") for method in METHODS]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), PAPER)
def test_one_step_of_every_paper_recipe(name: str, method: str) -> None:
    chosen = replace(recipe(name, method, "paper"), attack_steps=2)
    torch.manual_seed(0)
    network = network_of(chosen, 10)
    if isinstance(network, Discriminated):
        network.fix(chosen.discriminator_shift)
    if isinstance(network, JointDensity):
        nn.init.eye_(network.metric)
    shape = (2, chosen.channels, chosen.size, chosen.size)
    optimiser = optimiser_of(chosen, network)
    before = [weight.detach().clone() for weight in learning(network)]
    labels = torch.tensor([0, 0] if method == "discriminator" else [1, 2])
    total(method_of(chosen), Softmax(network), torch.rand(shape), labels, torch.rand(shape), 1e-4).backward()
    optimiser.step()
    for old, new in zip(before, learning(network), strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)


def summed(chosen: Recipe) -> tuple[type[torch.optim.Optimizer], dict[str, float | bool]]:
    """The paper's own figures, for losses summed over the batch (experimental details, appendix)."""
    if chosen.name == "mnist":
        return torch.optim.SGD, {"lr": 0.005 / 128, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}
    lr = 1e-4 if chosen.method == "good" else {"svhn": 0.01, "cifar10": 0.1}[chosen.name] / 128
    return torch.optim.Adam, {"lr": lr, "weight_decay": 0.005, "eps": 1e-8}


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10"])
@pytest.mark.parametrize("method", ["oe", "ceda", "good"])
def test_mean_losses_with_our_figures_equal_summed_losses_with_the_papers(name: str, method: str) -> None:
    chosen = replace(recipe(name, method, "paper"), quantile=0.5)
    minimised = method_of(chosen)
    weights = []
    for reduce in (Tensor.mean, Tensor.sum):
        torch.manual_seed(0)
        network = networks.build("XS", chosen.channels, 8, 10).double()
        kind, figures = summed(chosen)
        ours = reduce is Tensor.mean
        optimiser = optimiser_of(chosen, network) if ours else kind(network.parameters(), **figures)
        for step in range(3):
            torch.manual_seed(100 + step)
            x, labels = torch.rand(128, chosen.channels, 8, 8).double(), torch.randint(10, (128,))
            x_out = torch.rand(128, chosen.channels, 8, 8).double()
            in_loss, _ = minimised.in_loss(Softmax(network), x, labels)
            loss = reduce(in_loss) + 0.3 * reduce(minimised.out_loss(Softmax(network), x_out, 0.01))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        weights.append(torch.cat([weight.detach().flatten() for weight in network.parameters()]))
    assert torch.allclose(*weights, rtol=1e-9, atol=1e-12)
