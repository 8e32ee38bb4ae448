"""What the tests of bounds draw from: points of a Box, a small zoo of networks, random architectures.

Networks run in float64, where rounding cannot be mistaken for an unsound bound, nor hide one.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

from certood import Box

SHAPE = (3, 8, 8)  # of the zoo's images
CLASSES = 5

# ---- points ----------------------------------------------------------------------------------------------------------


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def points(box: Box, count: int = 12, seed: int = 0) -> Iterator[Tensor]:
    """Both ends, the centre, random corners and random points; each a tensor of its own, laid out as the Box is."""
    draw = generator(seed)
    found = [box.lower, box.upper, box.project(box.centre)]
    for _ in range(count):
        found += [box.corner(torch.randn(box.shape, generator=draw, dtype=box.dtype)), box.sample(draw)]
    for z in found:
        yield torch.empty_like(box.lower).copy_(z)


def excess(box: Box, value: Tensor) -> float:
    """How far `value` sticks out of the Box, relative to its size; 0 or less inside."""
    assert box.shape == value.shape
    assert box.dtype == value.dtype
    out = torch.maximum(box.lower - value, value - box.upper) / (1 + value.abs())
    assert not out.isnan().any()
    return float(out.max()) if out.numel() else 0.0


def parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def assert_sound(network: Callable[[Any], Any], box: Box, tolerance: float = 1e-9, count: int = 12) -> None:
    """Every real run of the same network on a point of the Box lies inside what it answered on the Box."""
    with torch.no_grad():
        bounds = parts(network(Box(box.lower.clone(), box.upper.clone())))
        for z in points(box, count):
            values = parts(network(z))
            assert len(values) == len(bounds)
            for bound, value in zip(bounds, values, strict=True):
                assert excess(bound, value) <= tolerance


# ---- the zoo ---------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Strided blocks with batch norm, `out += identity` and activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.one, self.one_norm = nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.two, self.two_norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.short = nn.Sequential(nn.Conv2d(6, 8, 1, stride=2), nn.BatchNorm2d(8))
        self.relu, self.pool, self.end = nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Linear(8, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        identity = self.short(x)
        out = self.relu(self.one_norm(self.one(x)))
        out = self.two_norm(self.two(out))
        out += identity
        return self.end(torch.flatten(self.pool(self.relu(out)), 1))


class Concatenating(nn.Module):
    """Dense blocks: every layer sees all that came before."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(7, 4, 3, padding=1)])
        self.end = nn.Linear(11 * 16, CLASSES)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.cat([x, F.leaky_relu(layer(x), 0.1)], dim=1)
        return self.end(F.avg_pool2d(x, 2).flatten(1))


class Reversible(nn.Module):
    """Halves of one tensor that change each other in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Conv2d(3, 8, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.end = nn.Linear(8 * 9, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        left, right = x[:, :4], x[:, 4:]
        left += torch.tanh(self.one(right.clone()))
        right -= F.silu(self.two(left.clone()))
        return self.end(F.max_pool2d(F.hardswish(x, inplace=True), 2).flatten(1))


class Mixing(nn.Module):
    """Tokens and channels in turn, through permuted views, with a normalisation of the input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor([0.4, 0.5, 0.6]).reshape(3, 1, 1))
        self.embed, self.tokens, self.channels = nn.Conv2d(3, 6, 2, stride=2), nn.Linear(16, 16), nn.Linear(6, 6)
        self.end = nn.Linear(6, CLASSES)

    def forward(self, x: Any) -> Any:
        x -= self.mean
        x *= -4.0
        x = self.embed(x).flatten(2)  # [N, 6, 16]
        x = x + F.gelu(self.tokens(x))
        x = x.transpose(1, 2)
        x = x + F.gelu(self.channels(x), approximate="tanh")
        return self.end(x.mean(1))


ZOO: dict[str, Callable[[], nn.Module]] = {
    "residual": Residual,
    "concatenating": Concatenating,
    "reversible": Reversible,
    "mixing": Mixing,
    "pooling": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, padding_mode="circular"),
        nn.ELU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
        nn.Dropout2d(0.3),
        nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect"),
        nn.Softplus(beta=2.0),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        nn.Flatten(),
        nn.Linear(6 * 9, CLASSES),
    ),
    "mobile": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, groups=3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU6(inplace=True),
        nn.Conv2d(6, 6, 3, dilation=2, groups=2),
        nn.BatchNorm2d(6, affine=False),
        nn.Hardswish(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.5, inplace=True),
        nn.Linear(6 * 4, 7),
        nn.BatchNorm1d(7),
        nn.Mish(inplace=True),
        nn.Linear(7, CLASSES),
        nn.Identity(),
    ),
    "upsampling": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 2, stride=2),
        nn.SELU(inplace=True),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.utils.parametrizations.weight_norm(nn.ConvTranspose2d(4, 4, 3, stride=2, output_padding=1, groups=2)),
        nn.LeakyReLU(0.2, inplace=True),
        nn.AdaptiveMaxPool2d(3),
        nn.Flatten(),
        nn.Linear(36, CLASSES),
    ),
    "logits from a convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.CELU(0.7), nn.Conv2d(6, CLASSES, 3), nn.Hardtanh(-9.0, 12.0), nn.Flatten()
    ),
}


def settle(network: nn.Module, seed: int = 0) -> nn.Module:
    """In eval mode, in float64, with weights of a seed and batch norms that have seen something."""
    draw = generator(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.normal_(generator=draw)
            module.running_var.uniform_(0.3, 2.0, generator=draw)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 1.5 / parameter[0].numel() ** 0.5 if parameter.ndim > 1 else 0.5, generator=draw)
    return network.double().eval()


def member(name: str) -> nn.Module:
    return settle(ZOO[name]())


def images(count: int = 3, seed: int = 1, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.rand(count, *shape, generator=generator(seed), dtype=torch.float64)


# ---- random architectures --------------------------------------------------------------------------------------------

ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    lambda: nn.LeakyReLU(0.3, inplace=True),
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Softplus,
    nn.ELU,
    nn.Hardswish,
]


@st.composite
def architectures(draw: st.DrawFn) -> nn.Module:
    """A few convolutions of any stride, padding, grouping and activation, maybe pooled; one or two linear layers."""
    layers: list[nn.Module] = []
    channels, size = SHAPE[0], SHAPE[1]
    for _ in range(draw(st.integers(0, 3))):
        groups = channels if draw(st.booleans()) else 1
        kernel, stride = draw(st.integers(1, min(3, size))), draw(st.integers(1, 2))
        padding = draw(st.integers(0, kernel // 2))
        width = groups * draw(st.integers(1, 2))
        layers.append(nn.Conv2d(channels, width, kernel, stride, padding, groups=groups, bias=draw(st.booleans())))
        channels, size = width, (size + 2 * padding - kernel) // stride + 1
        if draw(st.booleans()):
            layers.append(nn.BatchNorm2d(channels))
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
        if size > 1 and draw(st.booleans()):
            layers.append(draw(st.sampled_from((nn.MaxPool2d, nn.AvgPool2d)))(2, 1))
            size -= 1
    layers.append(nn.Flatten())
    features = channels * size * size
    if draw(st.booleans()):
        layers += [nn.Linear(features, 6), draw(st.sampled_from(ACTIVATIONS))()]
        features = 6
    layers.append(nn.Linear(features, draw(st.integers(2, 6))))
    return settle(nn.Sequential(*layers), draw(st.integers(0, 1000)))
