"""Means over an epoch, and when training no longer makes sense."""

import math

import pytest
import torch
from lightning_fabric import Fabric

from certood.errors import TrainingFailed
from certood.objective import Losses
from certood.tally import PATIENCE, SETTLED, Tally, Watch

CPU = Fabric(accelerator="cpu", devices=1)


def test_means_weigh_samples_not_batches() -> None:
    tally = Tally(CPU)
    for samples, right, loss in ((30, 15, 1.0), (10, 10, 5.0)):
        labels = torch.zeros(samples, dtype=torch.long)
        log_probs = torch.log(torch.tensor([[0.2, 0.8]] * (samples - right) + [[0.8, 0.2]] * right))
        per_sample = torch.full((samples,), loss)
        losses = Losses(per_sample, log_probs, torch.tensor([loss, 3 * loss]))
        tally.step(losses, 0.5, labels, weight=samples / 2)
    tally.look(torch.tensor([0.1, 0.3]), torch.tensor([0.5, 0.7]))
    tally.look(torch.tensor([0.4]), torch.tensor([1.0]))
    means = tally.means()
    assert means["accuracy"] == pytest.approx(25 / 40)
    assert means["loss"] == pytest.approx(2.0 + 0.5 * 4.0)
    assert means["loss_in"] == pytest.approx(2.0)
    assert means["loss_out"] == pytest.approx(4.0)
    assert means["confidence_in"] == pytest.approx(0.8)
    assert means["confidence_out"] == pytest.approx(0.8 / 3)
    assert means["bound_out"] == pytest.approx(2.2 / 3)


def test_nothing_looked_at_is_no_number() -> None:
    assert math.isnan(Tally(CPU).means()["bound_out"])


def test_it_goes_on_from_its_sums() -> None:
    first = Tally(CPU)
    first.look(torch.tensor([0.5]), torch.tensor([0.5]))
    again = Tally(CPU, first.sums.clone(), seconds=100)
    assert again.means() == pytest.approx(first.means(), nan_ok=True)
    assert 100 <= again.seconds() < 101


UNIFORM, LEARNING = {"confidence_in": 0.11, "accuracy": 0.12}, {"confidence_in": 0.5, "accuracy": 0.4}


def test_collapse_is_warned_of_and_then_ends_the_run() -> None:
    watch = Watch(classes=10)
    assert watch.collapsed(0, SETTLED - 1, UNIFORM, last=False) is None  # only the beginning
    for epoch in range(1, PATIENCE):
        assert "uniform answer" in watch.collapsed(epoch, SETTLED, UNIFORM, last=False)
    with pytest.raises(TrainingFailed, match=r"uniform answer.*--kappa-ramp"):
        watch.collapsed(PATIENCE, SETTLED, UNIFORM, last=False)


def test_a_run_that_recovers_is_left_alone_and_one_that_ends_collapsed_is_not() -> None:
    watch = Watch(classes=10)
    watch.collapsed(1, SETTLED, UNIFORM, last=False)
    assert watch.collapsed(2, SETTLED, LEARNING, last=False) is None
    assert watch.uniform_epochs == 0
    with pytest.raises(TrainingFailed):
        watch.collapsed(3, SETTLED, UNIFORM, last=True)


def test_a_good_classifier_of_two_classes_has_not_collapsed() -> None:
    assert Watch(classes=2).collapsed(5, SETTLED, {"confidence_in": 0.59, "accuracy": 0.97}, last=True) is None


def test_a_run_too_short_to_tell_ends_with_a_warning() -> None:
    assert "uniform answer" in Watch(classes=10).collapsed(0, SETTLED - 1, UNIFORM, last=True)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_divergence(loss: float) -> None:
    with pytest.raises(TrainingFailed, match=f"loss is {loss}"):
        Watch(10).diverged(1.5, {"loss": loss, "bound_out": math.nan})
    Watch(10).diverged(1.5, {"loss": 1e30, "bound_out": 1.0})
