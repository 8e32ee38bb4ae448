"""Shared by all tests: one thread for torch, settings of hypothesis, where the real images are."""

from dataclasses import replace
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


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that were trained on the built-in digits for a moment: good, oe and plain."""
    from certood.recipes import recipe
    from certood.training import train

    folder = tmp_path_factory.mktemp("trained")
    for seed, method in enumerate(("good", "oe", "plain")):
        tiny = replace(recipe("demo", method, epochs=3), in_limit=600, out_limit=600, batch_size=32, kappa=0.1)
        train(replace(tiny, eps=0.02, seed=seed), folder / method)
    return folder


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CERTOOD_DATA", raising=False)
