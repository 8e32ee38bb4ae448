"""What a Box is, what its operators and in-place functions do, and that networks which change memory stay bounded."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import assert_sound, excess, generator, points
from torch import Tensor, nn

from certood import Box, CertoodError, UnsupportedOperation
from certood.errors import BoxError


def example(radius: float = 0.3, shape: tuple[int, ...] = (2, 4, 4, 4), seed: int = 0) -> Box:
    return Box.around(torch.randn(shape, generator=generator(seed), dtype=torch.float64), radius, cut=False)


# ---- the set ---------------------------------------------------------------------------------------------------------


def test_around_is_cut_to_valid_images() -> None:
    box = Box.around(torch.tensor([[0.0, 0.5, 0.95]]), 0.1)
    assert torch.allclose(box.lower, torch.tensor([[0.0, 0.4, 0.85]]))
    assert torch.allclose(box.upper, torch.tensor([[0.1, 0.6, 1.0]]))
    whole = Box.around(torch.tensor([[0.0, 0.5, 0.95]]), 0.1, cut=False)
    assert torch.allclose(whole.upper - whole.lower, torch.full((1, 3), 0.2))


def test_each_sample_may_have_its_own_eps() -> None:
    x = torch.full((3, 1, 2, 2), 0.5)
    box = Box.around(x, torch.tensor([0.0, 0.1, 0.9]))
    assert torch.allclose(box.radius[:, 0, 0, 0], torch.tensor([0.0, 0.1, 0.5]))
    assert torch.equal(Box.around(x, 0.0).lower, x)


@given(st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=30)
def test_points_of_a_box(seed: int, eps: float) -> None:
    x = torch.rand(3, 2, 4, generator=generator(seed))
    box = Box.around(x, eps)
    for z in points(box, 3, seed):
        assert box.contains(z).all()
        assert torch.equal(box.project(z), z)
    far = x + torch.randn(x.shape, generator=generator(seed + 1))
    near = box.project(far)
    assert box.contains(near).all()
    assert torch.equal(box.contains(far), (near == far).flatten(1).all(1))
    direction = torch.randn(x.shape, generator=generator(seed + 2))
    corner = box.corner(direction)
    assert ((corner - box.sample(generator(seed))) * direction >= 0).all()
    rows = torch.tensor([2, 0])
    assert torch.equal(box.select(rows).upper, box.upper[rows])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: Box(x + 1, x), "empty Box: lower exceeds upper in 12 coordinates"),
        (lambda x: Box(x, x * torch.nan), "cannot hold NaN"),
        (lambda x: Box(x[:1], x), "lower and upper differ"),
        (lambda x: Box(x.double(), x), "lower and upper differ"),
        (lambda x: Box(x.long(), x.long()), "floating-point"),
        (lambda x: Box(0.0, x), "needs two tensors, not float and Tensor"),
        (lambda x: Box.around((255 * x).to(torch.uint8), 0.1), "divide 8-bit images by 255"),
        (lambda x: Box.around(255 * x + 2, 0.1), r"images must lie in \[0, 1\]"),
        (lambda x: Box.around(x - 1.5, 0.1), r"images must lie in \[0, 1\]"),
        (lambda x: Box.around(x * torch.nan, 0.1), r"images must lie in \[0, 1\]"),
        (lambda x: Box.around(x * torch.nan, 0.1, cut=False), "cannot hold NaN"),
        (lambda x: Box.around(x, -0.1), "eps must be 0 or more"),
        (lambda x: Box.around(x, torch.nan), "eps must be 0 or more"),
        (lambda x: Box.around(x, torch.tensor([0.1, -0.1])), "eps must be 0 or more"),
        (lambda x: Box.around(x, torch.tensor([0.1, 0.1, 0.1])), "3 values of eps for 2 images"),
        (lambda x: Box.around(x, "0.1"), "eps is a number, or a tensor with one for each image, not '0.1'"),
        (lambda x: Box.around(x, True), "eps is a number"),
        (lambda x: Box.around(x.tolist(), 0.1), "float tensor"),
    ],
)
def test_what_is_no_box_is_named_in_one_line(make: Callable[[Tensor], Box], message: str) -> None:
    with pytest.raises(BoxError, match=message) as caught:
        make(torch.full((2, 6), 0.5))
    assert "\n" not in str(caught.value)


def test_what_a_box_tells_about_itself() -> None:
    box = example()
    assert (box.shape, box.ndim, box.dim(), box.size(1), box.size(dim=-1)) == (box.lower.shape, 4, 4, 4, 4)
    assert (box.dtype, box.device.type, box.numel(), box.is_floating_point()) == (torch.float64, "cpu", 128, True)
    assert "lower=" in repr(box)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = box.no_such_thing
    with pytest.raises(AttributeError):
        box.threshold = 1.0  # a frozen value


# ---- operators -------------------------------------------------------------------------------------------------------


def test_operators_are_the_functions_of_the_same_name() -> None:
    box, constant = example(), torch.randn(4, 4, generator=generator(1), dtype=torch.float64)
    pairs: list[tuple[Any, Any]] = [
        (box + constant, torch.add(box, constant)),
        (constant + box, torch.add(constant, box)),
        (box - constant, torch.sub(box, constant)),
        (constant - box, torch.sub(constant, box)),
        (2 - box, -(box - 2)),
        (box * constant, torch.mul(box, constant)),
        (constant * box, torch.mul(constant, box)),
        (-2 * box, box * -2),
        (box / constant, torch.div(box, constant)),
        (box @ constant, torch.matmul(box, constant)),
        (constant @ box, torch.matmul(constant, box)),
        (box**2, torch.square(box)),
        (abs(box), torch.abs(box)),
        (-box, torch.neg(box)),
        (box.relu(), F.relu(box)),
        (sum([box, box]), box * 2),
        (next(iter(box)), box[0]),
    ]
    for number, (one, two) in enumerate(pairs):
        assert torch.allclose(one.lower, two.lower, atol=1e-14), number
        assert torch.allclose(one.upper, two.upper, atol=1e-14), number


def test_a_number_of_numpy_is_a_number_on_either_side() -> None:
    box = example()
    for product in (np.float64(-2.0) * box, box * np.float64(-2.0)):
        assert torch.equal(product.lower, -2 * box.upper)
        assert torch.equal(product.upper, -2 * box.lower)
    half = torch.full((1, 2), 0.5)
    assert torch.equal(Box.around(half, np.float32(0.25)).upper, half + 0.25)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_centre_does_not_overflow(dtype: torch.dtype) -> None:
    """(l + u) / 2 would be infinite here, W c too, and what saturates makes of it a number that no z attains."""
    high = torch.tensor([[0.6 * torch.finfo(dtype).max, 1.0]], dtype=dtype)
    box = Box(high, high.clone())
    assert torch.equal(box.centre, high)
    weight = torch.tensor([[1 / float(high[0, 0]), 0.01], [-1 / float(high[0, 0]), 0.02]], dtype=dtype)

    def saturating(z: Any) -> Any:
        return F.hardtanh(F.linear(z, weight), -5.0, 5.0)

    assert excess(saturating(box), saturating(high)) <= 0


# ---- in place --------------------------------------------------------------------------------------------------------


def kept(x: Any) -> Any:
    before = x * 1
    identity = before
    F.relu(before, inplace=True)
    return identity


def through_a_view(x: Any) -> Any:
    x = x * 1
    part = x[:, 1:3].permute(0, 2, 3, 1)[..., 0]
    part *= -2
    F.relu(x[..., 1:], inplace=True)
    return x - 0.2


def halves(x: Any) -> Any:
    x = x * 1
    left, right = x.chunk(2, 1)
    right += F.relu(left, inplace=True)
    left -= right
    return x


def power(x: Any) -> Any:
    x = x * 1
    before = x
    x **= 2
    return before


def matrix(x: Any) -> Any:
    before = x
    x @= torch.eye(4, dtype=x.dtype) * -3  # torch makes a new tensor here
    return before


def constant_first(x: Any) -> Any:
    """The product takes the layout of the constant, so that `reshape` gives a view of it and not a copy."""
    product = torch.ones(2, 4, 4, 4, dtype=x.dtype) * x.permute(0, 2, 3, 1)
    F.relu(product.reshape(2, -1), inplace=True)
    return product


def copied(x: Any) -> Any:
    before = x.permute(0, 2, 3, 1)
    F.relu(before.reshape(2, -1), inplace=True)  # a copy, for no view has that shape
    return before


def expanded(x: Any) -> Any:
    small = x[:, :1] * 1
    large = small.expand(2, 4, 4, 4)
    F.leaky_relu(small, -0.0, True)
    return large


def detached(x: Any) -> Any:
    x = x * 1
    F.relu(x.detach(), inplace=True)
    return x


def dropped(x: Any) -> Any:
    """In eval mode dropout answers its argument itself."""
    x = x * 1
    F.relu(F.dropout(x, 0.5, training=False), inplace=True)
    return x


def scaled_input(x: Any) -> Any:
    x -= 0.5
    x /= -0.2
    return x


def reshaped(x: Any) -> Any:
    view = x.reshape(2, -1)
    view *= -2
    return x


AWKWARD: list[Callable[[Any], Any]] = [
    *(
        kept,
        through_a_view,
        halves,
        power,
        matrix,
        constant_first,
        copied,
        expanded,
        detached,
        dropped,
        scaled_input,
        reshaped,
    ),
]


@pytest.mark.parametrize("network", AWKWARD, ids=lambda network: network.__name__)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_changes_in_place_reach_whoever_shares_the_memory(network: Any, layout: torch.memory_format) -> None:
    box = example()
    assert_sound(network, Box(box.lower.contiguous(memory_format=layout), box.upper.contiguous(memory_format=layout)))


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReLU(True),
        nn.LeakyReLU(0.3, True),
        nn.ELU(1.0, True),
        nn.CELU(1.0, True),
        nn.SELU(True),
        nn.SiLU(True),
        nn.Mish(True),
        nn.Hardswish(True),
        nn.Hardsigmoid(True),
        nn.ReLU6(True),
        nn.Hardtanh(-0.4, 0.3, True),
        nn.Dropout(0.5, True).eval(),
    ],
    ids=repr,
)
def test_every_in_place_layer(layer: nn.Module) -> None:
    """It answers the very Box that it was given, changed; whoever holds that sees it; training goes through it."""

    def network(x: Any) -> Any:
        x = x * weight
        identity = x
        y = layer(x)
        y = y + identity
        y += 1
        return y

    weight = torch.randn(4, generator=generator(3), dtype=torch.float64)
    assert_sound(network, example(1.0))
    weight.requires_grad_()
    out = network(example(1.0))
    out.upper.sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()
    box = example()
    assert layer(box) is box


def test_a_change_in_place_forgets_the_linear_layer() -> None:
    linear = nn.Linear(4, 3).double()
    for change in (
        "out += 1",
        "out.view(-1)",
        "out[0]",
        "F.relu(out, inplace=True)",
        "F.relu(out.view(-1), inplace=True)",
    ):
        out = linear(example(shape=(2, 4)))
        assert out.source is not None
        exec(change, {"out": out, "F": F})
        assert out.source is None, change


def test_ends_of_one_memory_are_parted() -> None:
    """A user's Box may share memory between its ends, or hold them in two layouts."""
    x = torch.rand(2, 4, 4, 4, generator=generator(), dtype=torch.float64)
    both = torch.stack([x, x + 0.1])
    steps = torch.linspace(-1, 1, 129, dtype=torch.float64)
    for box in (
        Box(x, x),
        Box(both[0], both[1]),
        Box(steps[:-1].view(2, 4, 4, 4), steps[1:].view(2, 4, 4, 4)),
        Box(x.contiguous(memory_format=torch.channels_last), x + 0.1),
    ):
        points_of_box = [z.contiguous() for z in points(box, 3)]
        bound = reshaped(box)
        for z in points_of_box:
            assert excess(bound, reshaped(z)) <= 1e-12


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "total += x": (lambda x: exec("total += x", {"total": torch.zeros(2, 4, 4, 4, dtype=x.dtype), "x": x}), "add_"),
    "total *= x": (lambda x: exec("total *= x", {"total": torch.ones(2, 4, 4, 4, dtype=x.dtype), "x": x}), "mul_"),
    "copy_": (lambda x: torch.zeros(2, 4, 4, 4, dtype=x.dtype).copy_(x), "copy_"),
    "x[0] = 1": (lambda x: exec("x[0] = 1", {"x": x}), "__setitem__"),
    "x[0] += 1": (lambda x: exec("x[0] += 1", {"x": x}), "__setitem__"),
    "relu_": (lambda x: x.relu_(), "relu_"),
    "add_": (lambda x: x.add_(1), "add_"),
    "overlapping views": (lambda x: x[:, 1:].__iadd__(x[:, :3]), "overlaps"),
    "overlap with its transposed": (lambda x: x.__iadd__(x.transpose(2, 3)), "overlaps"),
    "x // 2": (lambda x: x // 2, "floor_divide"),
    "x % 2": (lambda x: x % 2, "remainder"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_writing_where_a_bound_cannot_follow_is_refused(name: str) -> None:
    network, message = REFUSED[name]
    with pytest.raises(CertoodError, match=message) as caught:
        network(example())
    assert "\n" not in str(caught.value)


def test_adding_into_a_constant_does_not_pass_for_adding() -> None:
    """After a TypeError Python takes `total += x` for `total = total + x`, which `other` would not see."""

    def network(x: Any) -> Any:
        total = torch.zeros(2, 4, 4, 4, dtype=x.dtype)
        other = total
        total += x
        return other + x

    with pytest.raises(UnsupportedOperation, match="add_"):
        network(example())


# ---- random programs -------------------------------------------------------------------------------------------------

CUBE = (2, 4, 4, 4)  # every value of a program has this shape, in one layout or another


def _constant(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape or CUBE, generator=generator(seed), dtype=torch.float64)


# A new value of an old one, and a number to draw constants by: views of its memory, copies of it, functions of it.
NEW: list[Callable[[Any, int], Any]] = [
    lambda x, seed: x.view(x.shape),
    lambda x, seed: x.transpose(1, 2),
    lambda x, seed: x.permute(0, 2, 3, 1),
    lambda x, seed: x.reshape(2, 16, 4).reshape(CUBE),
    lambda x, seed: x.flatten(1).view(CUBE),
    lambda x, seed: x.contiguous(),
    lambda x, seed: x.contiguous(memory_format=torch.channels_last),
    lambda x, seed: x.detach(),
    lambda x, seed: x.expand(CUBE),
    lambda x, seed: x.unsqueeze(0).squeeze(0),
    lambda x, seed: x.movedim(1, 3),
    lambda x, seed: x.to(torch.float64),
    lambda x, seed: x[:, :],
    lambda x, seed: x[:, :, [3, 1, 2, 0]],
    lambda x, seed: torch.cat(x.chunk(2, 1)[::-1], 1),
    lambda x, seed: torch.stack(x.unbind(2), 2),
    lambda x, seed: x.clone(),
    lambda x, seed: F.dropout(x, 0.5, False),
    lambda x, seed: F.relu(x),
    lambda x, seed: F.gelu(x),
    lambda x, seed: abs(x) - 0.3,
    lambda x, seed: -x,
    lambda x, seed: x * _constant(seed),
    lambda x, seed: _constant(seed) * x,
    lambda x, seed: x - _constant(seed),
    lambda x, seed: _constant(seed) - x,
    lambda x, seed: x / (_constant(seed).abs() + 0.5),
    lambda x, seed: torch.maximum(_constant(seed), x),
    lambda x, seed: x @ _constant(seed, 4, 4) * 0.5,
    lambda x, seed: _constant(seed, 4, 4) @ x * 0.5,
    lambda x, seed: F.linear(x, _constant(seed, 4, 4), _constant(seed, 4)),
    lambda x, seed: F.conv2d(x, _constant(seed, 4, 4, 3, 3) * 0.2, padding=1),
    lambda x, seed: F.avg_pool2d(x, 3, 1, 1),
    lambda x, seed: F.max_pool2d(x, 3, 1, 1),
    lambda x, seed: F.pad(x, (1, -1)),
]
BINARY: list[Callable[[Any, Any], Any]] = [lambda a, b: a + b, lambda a, b: a - b, torch.minimum]
PARTS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x[:, 1:3],
    lambda x: x[:, :, 0],
    lambda x: x.narrow(3, 1, 2),
    lambda x: x.chunk(2, 1)[1],
    lambda x: x.unbind(2)[3],
]
IN_PLACE = (
    *("x += 0.7", "x -= 0.2", "x *= -0.7", "x /= -1.3", "x **= 2", "F.relu(x, inplace=True)"),
    *("F.leaky_relu(x, 0.1, True)", "F.silu(x, True)", "F.dropout(x, 0.5, False, True)"),
)
IN_PLACE_BINARY = ("x += y", "x -= y", "x += -0.5 * y")


def program(seed: int) -> Callable[[Any], Any]:
    """A random sequence of new values and changes in place, of whole values and of parts; the answer is every value."""
    choice = random.Random(seed)
    steps = [
        (choice.choice("nnnbiipjq"), *(choice.randrange(10**6) for _ in range(3))) for _ in range(choice.randint(2, 9))
    ]

    def run(x: Any) -> Any:
        values = [x]
        for kind, draw, i, j in steps:
            first, second = values[i % len(values)], values[j % len(values)]
            if kind == "n":
                values.append(NEW[draw % len(NEW)](first, draw))
            elif kind == "b":
                values.append(BINARY[draw % len(BINARY)](first, second))
            elif kind in "ip":
                part = PARTS[i % len(PARTS) if kind == "p" else 0](first)
                exec(IN_PLACE[draw % len(IN_PLACE)], {"x": part, "F": F})
            else:
                take = PARTS[i % len(PARTS) if kind == "q" else 0]
                exec(IN_PLACE_BINARY[draw % len(IN_PLACE_BINARY)], {"x": take(first), "y": take(second)})
        return torch.stack(values)

    return run


@given(st.integers(0, 2**32))
@settings(max_examples=300)
def test_random_programs_stay_bounded(seed: int) -> None:
    """Views, copies and changes in place in any order: what a real run answers lies inside what the Box answers."""
    run = program(seed)
    layout = torch.channels_last if seed % 3 == 0 else torch.contiguous_format
    box = example(0.1, CUBE, seed)
    box = Box(*(end.contiguous(memory_format=layout) for end in (box.lower, box.upper)))
    try:
        bound = run(Box(box.lower.clone(), box.upper.clone()))
    except UnsupportedOperation:  # of overlapping views, where torch's own answer is undefined
        return
    for z in points(box, 3, seed):
        assert excess(bound, run(z)) <= 1e-9
