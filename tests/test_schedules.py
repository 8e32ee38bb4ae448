"""Schedules against their definitions and the paper's table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certood.schedules import Cosine, Ramp, Steps

times = st.floats(0, 1000)


@pytest.mark.parametrize(
    ("schedule", "epoch", "value"),
    [
        (Ramp(0.3, 2, 100), 2, 0.0),
        (Ramp(0.3, 2, 100), 3, 0.003),
        (Ramp(0.3, 2, 100), 102, 0.3),
        (Ramp(0.3, 2, 100), 419, 0.3),
        (Ramp(1.0, -2, 300), 0, 2 / 300),  # GOOD on CIFAR-10 starts past its zero
        (Ramp(1.0, 60, 300), 200, 140 / 300),  # the CEDA checkpoint that it starts from: kappa 0.47
        (Ramp(0.3, 6, 0), 5, 0.0),  # ACET: nothing, then everything
        (Ramp(0.3, 6, 0), 6, 0.3),
        (Steps(1.0, (50, 100)), 49, 1.0),
        (Steps(1.0, (50, 100)), 50, 0.2),
        (Steps(1.0, (50, 100)), 100, 0.04),
        (Cosine(1.0, 10), 0, 1.0),
        (Cosine(1.0, 10), 5, 0.5),
        (Cosine(1.0, 10), 10, 0.0),
        (Cosine(1.0, 10, warmup=2), 1, 0.5),
    ],
)
def test_values(schedule: Ramp | Steps | Cosine, epoch: float, value: float) -> None:
    assert schedule(epoch) == pytest.approx(value, abs=1e-12)


@given(times, times, st.floats(-10, 100), st.floats(0, 100))
def test_a_ramp_never_falls_and_stays_inside(first: float, second: float, start: float, length: float) -> None:
    ramp = Ramp(0.3, start, length)
    early, late = ramp(min(first, second)), ramp(max(first, second))
    assert 0 <= early <= late <= 0.3
