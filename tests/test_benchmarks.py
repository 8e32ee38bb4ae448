"""What benchmarks compare must be the same thing, and what they write must leave other sections alone."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from certood import Box, confidence_upper, max_gap, networks
from certood.methods import GOOD, Softmax

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def baselines(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import baselines

    return baselines


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import measuring

    monkeypatch.setattr(measuring, "RESULTS", tmp_path / "RESULTS.md")
    return measuring


def test_the_paper_s_formulas_give_the_same_bound_and_the_same_step(baselines: ModuleType) -> None:
    torch.manual_seed(0)
    network = networks.build("XS", 1, 28, 10)
    x, x_out, labels = torch.rand(6, 1, 28, 28), torch.rand(6, 1, 28, 28), torch.arange(6)
    box = Box.around(x_out, 0.05, cut=False)
    torch.testing.assert_close(baselines.naive_gap(network, x_out, 0.05), max_gap(network, box), rtol=1e-4, atol=1e-5)

    gradients = []
    naive = baselines.naive_step(network, torch.optim.SGD(network.parameters(), 0.0), passes=3)
    naive(x, labels, x_out, 0.3, 0.05)
    gradients.append([weight.grad.clone() for weight in network.parameters()])
    network.zero_grad()
    (F.cross_entropy(network(x), labels) + 0.3 * GOOD().out_loss(Softmax(network), x_out, 0.05).mean()).backward()
    gradients.append([weight.grad.clone() for weight in network.parameters()])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)


def test_the_former_rule_gives_the_same_bound_and_leaves_no_trace(baselines: ModuleType) -> None:
    network, box = networks.build("XS", 1, 28, 10), Box.around(torch.rand(4, 1, 28, 28), 0.1)
    expected = confidence_upper(network, box)
    with baselines.one_function_at_a_time():
        assert "ConvolutionEnds" not in str(network(box).lower.grad_fn)
        torch.testing.assert_close(confidence_upper(network, box), expected)
    assert torch.equal(confidence_upper(network, box), expected)


def test_a_section_takes_the_place_of_its_predecessor(measuring: Any) -> None:
    old = "# Results\n\n## `python benchmarks/a.py`: old\n\n1\n\n## `python benchmarks/b.py`: b\n\n2\n"
    measuring.RESULTS.write_text(old)
    measuring.record("a.py", "new", ["3"])
    measuring.record("c.py", "more", ["4"])
    text = measuring.RESULTS.read_text()
    assert text.index("a.py`: new\n\n3") < text.index("b.py`: b\n\n2") < text.index("c.py`: more\n\n4")
    assert "old" not in text


def test_times_are_taken_in_turns(measuring: Any) -> None:
    order: list[str] = []
    times = measuring.interleaved({name: lambda name=name: order.append(name) for name in "ab"}, 0, least=3, most=3)
    assert order == ["a", "b"] * 5
    assert times["a"].best <= times["a"].median
    assert "NOT met" in measuring.verdict("x", 3, 2)
    assert measuring.verdict("x", 3, 2, at_most=False).startswith("- met")
