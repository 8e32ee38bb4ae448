"""Shared by all tests: one thread for torch, settings of hypothesis, where the real images are."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).parents[1]
IMAGES = REPOSITORY.parent / "shared" / "data"

settings.register_profile("certood", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.load_profile("certood")


torch.set_num_threads(1)  # tests run side by side, and threads that wait for each other spin


@pytest.fixture(scope="session")
def images() -> Path:
    """The folder of real image sets, outside the repository."""
    if not (IMAGES / "mnist" / "test.parquet").is_file():
        pytest.skip("the real image sets are not beside this checkout (shared/data)")
    return IMAGES


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CERTOOD_DATA", raising=False)
