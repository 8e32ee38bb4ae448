"""Who writes a certificate: it is for these weights, this image and this network, or it is not written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file
from torch import nn

from certood import networks, verify
from certood.certificates import architecture, certificate, write_certificate
from certood.errors import BrokenInvariant, CertificateError


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return networks.build("XS", 1, 8, 3).requires_grad_(False)


@pytest.fixture
def weights(network: nn.Sequential, tmp_path: Path) -> Path:
    save_file({key: value.numpy() for key, value in network.state_dict().items()}, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).random((1, 8, 8), np.float32)


def test_layers_of_every_network_of_the_recipes() -> None:
    for name in networks.ARCHITECTURES:
        with torch.device("meta"):
            layers = architecture(networks.build(name, 3, 32, 10))
        assert [layer["kind"] for layer in layers][-1] == "linear"
        assert layers[0] == {"kind": "convolution", "name": "0", "stride": layers[0]["stride"], "padding": [1, 1]}


OTHERS = (
    *(nn.GELU(), nn.Conv2d(1, 1, 3, dilation=2), nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(1, 1, 3, bias=False)),
    *(nn.Conv2d(1, 1, 3, padding="same"), nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")),
    *(nn.Flatten(0), nn.Linear(2, 2, bias=False)),
)


@pytest.mark.parametrize("layer", OTHERS)
def test_other_layers_are_refused(layer: nn.Module) -> None:
    with pytest.raises(CertificateError, match="certificates are for the networks of recipes; layer 0"):
        architecture(nn.Sequential(layer, nn.Linear(2, 2)))


def test_a_larger_eps_is_a_larger_bound(network: nn.Sequential, weights: Path, pixels: np.ndarray) -> None:
    bounds = [certificate(weights, network, pixels, eps)["score_upper"] for eps in (0.0, 1e-3, 0.01, 0.1, 1.0)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 5


def test_weights_of_another_network_are_noticed(network: nn.Sequential, weights: Path, pixels: np.ndarray) -> None:
    network[0].weight.mul_(3)
    with pytest.raises(BrokenInvariant, match="the weights are not those of the network"):
        certificate(weights, network, pixels, 0.1)


def test_an_image_file_of_other_pixels_is_noticed(
    network: nn.Sequential, weights: Path, pixels: np.ndarray, tmp_path: Path
) -> None:
    stored = np.zeros((8, 8), np.uint8)
    Image.fromarray(stored).save(tmp_path / "a.png")
    with pytest.raises(CertificateError, match="holds other pixels than those certified"):
        certificate(weights, network, pixels, 0.1, None, tmp_path / "a.png")
    certificate(weights, network, stored[None].astype(np.float32), 0.1, None, tmp_path / "a.png")


@pytest.mark.parametrize("eps", [-0.1, 1.1, float("nan")])
def test_a_radius_that_is_none(eps: float, network: nn.Sequential, weights: Path, pixels: np.ndarray) -> None:
    with pytest.raises(CertificateError, match="eps is between 0 and 1"):
        certificate(weights, network, pixels, eps)


def test_weights_that_are_not_there(network: nn.Sequential, pixels: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="cannot read"):
        certificate(tmp_path / "none", network, pixels, 0.1)


def test_what_is_written_is_what_is_read(
    network: nn.Sequential, weights: Path, pixels: np.ndarray, tmp_path: Path
) -> None:
    content = certificate(weights, network, pixels, 0.1, -3.5)
    write_certificate(tmp_path / "c.json", content)
    assert verify.read_certificate(tmp_path / "c.json") == content
    assert content["threshold"] == -3.5
