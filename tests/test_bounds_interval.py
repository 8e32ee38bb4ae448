"""Every rule against brute force, the exact worst corner of linear maps, and what has no bound."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from strategies import assert_sound, excess, generator, parts
from torch import Tensor, nn

import certood.bounds  # fills the table
from certood import Box, UnsupportedOperation, boxes

RULES = dict(boxes.RULES)  # as it is before documentation and other tests add to it


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A call, the shape of its input, and how tight the bound must be.

    affine: the worst corner of each output attains it; rising: so do the two ends; loose: it holds, no more.
    """

    name: str
    call: Callable[[Any], Any]
    shape: tuple[int, ...] = (2, 4, 6, 6)
    kind: str = "affine"


class Constant(tuple[int, ...]):
    """The shape of a random tensor that takes the dtype of the input."""

    def like(self, x: Any) -> Tensor:
        return torch.randn(*self, generator=generator(sum(self)), dtype=torch.float64).to(x.dtype)


class Variance(Constant):
    def like(self, x: Any) -> Tensor:
        return super().like(x).abs() + 0.1


def resolve(value: Any, x: Any) -> Any:
    return value.like(x) if isinstance(value, Constant) else value


def rows(
    names: str, *arguments: Any, shape: Any = (2, 4, 6, 6), kind: str = "affine", **options: Any
) -> Iterator[Case]:
    """One case for each place where torch has a function of these names: torch, a tensor's method, functional."""
    for name in names.split():
        for place, home in (("torch", torch), ("Tensor", Tensor), ("F", F)):
            function = getattr(home, name, None)
            if function in RULES:

                def call(x: Any, name: str = name, home: Any = home) -> Any:
                    given = [resolve(value, x) for value in arguments]
                    named = {key: resolve(value, x) for key, value in options.items()}
                    function = getattr(x, name) if home is Tensor else getattr(home, name)
                    return function(*given, **named) if home is Tensor else function(x, *given, **named)

                label = ", ".join([*map(str, arguments), *(f"{key}={value}" for key, value in options.items())])
                yield Case(f"{place}.{name}({label})", call, shape, kind)


LINE, IMAGE, VOLUME = (2, 4, 7), (2, 4, 6, 6), (2, 4, 4, 4, 4)
C = Constant
CASES: list[Case] = [
    # affine
    *rows("linear", C((3, 6)), C((3,))),
    *rows("linear", weight=C((3, 6)), bias=None, shape=(2, 6)),
    *rows("conv1d", C((3, 4, 3)), C((3,)), shape=LINE),
    *rows("conv1d", C((8, 1, 2)), None, 2, 1, 2, 4, shape=LINE),
    *rows("conv2d", C((3, 4, 3, 3)), C((3,)), padding="same"),
    *rows("conv2d", C((6, 2, 3, 3)), None, (2, 1), (1, 0), (2, 1), 2),
    *rows("conv3d", C((3, 4, 2, 2, 2)), C((3,)), shape=VOLUME),
    *rows("conv3d", C((4, 1, 3, 3, 3)), None, stride=2, padding=1, groups=4, shape=VOLUME),
    *rows("conv_transpose1d", C((4, 3, 3)), C((3,)), stride=2, output_padding=1, shape=LINE),
    *rows("conv_transpose2d", C((4, 3, 3, 3)), C((6,)), 2, 1, 1, 2, 2),
    *rows("conv_transpose3d", C((4, 2, 2, 2, 2)), stride=2, shape=VOLUME),
    *rows("matmul mm", C((6, 3)), shape=(2, 6)),
    *rows("matmul", C((6, 3))),
    *rows("bmm", C((2, 6, 3)), shape=(2, 4, 6)),
    Case("constant @ x", lambda x: C((5, 6)).like(x) @ x),
    Case("x @ constant", lambda x: x @ C((6, 5)).like(x)),
    *rows("batch_norm", C((4,)), Variance((4,)), C((4,)), C((4,)), False, 0.1, 1e-3),
    *rows("batch_norm", C((4,)), Variance((4,)), shape=(3, 4)),
    *rows("add", C((4, 1, 6))),
    *rows("add", -1.5),
    *rows("add", other=C((4, 1, 6))),
    *rows("sub subtract", C((4, 1, 6))),
    *rows("neg"),
    *rows("mul multiply", C((5, 2, 4, 1, 6))),
    *rows("mul", -0.7),
    *rows("div divide true_divide", C((4, 6, 1))),
    *rows("div", -3),
    Case("constants on the left", lambda x: 2 - C((6,)).like(x) * (-1.5 * x)),
    Case("torch.sub(constant, x)", lambda x: torch.sub(C((6,)).like(x), x)),
    *rows("mean sum", (2, 3)),
    *rows("mean sum", 1, keepdim=True),
    *rows("mean sum"),
    *rows("sum mean", dim=1, dtype=torch.float64),
    *rows("avg_pool1d", 3, 2, 1, shape=LINE),
    *rows("avg_pool2d", 3, 2, 1, True, False),
    *rows("avg_pool2d", 2, divisor_override=3),
    *rows("avg_pool3d", 2, 1, shape=VOLUME),
    *rows("adaptive_avg_pool1d", 3, shape=LINE),
    *rows("adaptive_avg_pool2d", (4, None)),
    *rows("adaptive_avg_pool3d", 3, shape=VOLUME),
    *(
        case
        for factor in (0.4, 1.7, 2.0)
        for case in (
            *rows("interpolate", scale_factor=factor),
            *rows("interpolate", None, factor, "nearest-exact"),
            *rows("interpolate", scale_factor=factor, mode="bilinear"),
            *rows("interpolate", scale_factor=factor, mode="bilinear", align_corners=True),
            *rows("interpolate", scale_factor=factor, mode="bilinear", antialias=True),
            *rows("interpolate", scale_factor=factor, mode="area"),
        )
    ),
    *rows("interpolate", 5, mode="linear", shape=LINE),
    *rows("interpolate", 5, mode="trilinear", shape=VOLUME),
    # what moves, copies or selects
    *rows("flatten", 1),
    *rows("unflatten", 1, (2, 2)),
    *rows("view reshape", (2, -1)),
    *rows("permute", (0, 3, 1, 2)),
    *rows("transpose", 1, 3),
    *rows("movedim", 1, 2),
    *rows("squeeze", 1, shape=(2, 1, 5)),
    *rows("unsqueeze", 1),
    *rows("narrow", 2, 1, 3),
    *rows("contiguous clone detach float double"),
    *rows("expand", 3, 2, 4, 5, shape=(2, 4, 1)),
    *rows("repeat", 2, 1, 3, 1),
    *rows("chunk", 2, 1),
    *rows("split", [1, 3], dim=1),
    *rows("unbind", 1),
    *rows("to", torch.float64),
    *rows("__getitem__", (slice(None), [2, 0], ..., None, slice(1, 4))),
    *rows("pixel_shuffle", 2),
    *rows("pixel_unshuffle", 2),
    *rows("pad", (1, 2, 0, 1), value=-0.3),
    *(case for mode in ("reflect", "circular", "replicate") for case in rows("pad", (1, 2, 0, 1), mode=mode)),
    *rows("pad", (-1, 1, 0, -2)),
    *(
        Case(f"{name}([x, constant, -x])", lambda x, name=name: getattr(torch, name)([x, C(IMAGE).like(x), -x], 1))
        for name in ("cat", "concat", "concatenate", "stack")
    ),
    Case("cat by axis", lambda x: torch.cat([x, -x], axis=-1)),
    Case("cat by name", lambda x: torch.cat(tensors=(x[:, 2:], x[:, :2]), dim=1)),
    *(
        case
        for name in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")
        for case in rows(name, 0.3, training=False)
    ),
    *rows("dropout1d", training=False, shape=LINE),
    *rows("dropout3d", 0.3, False, shape=VOLUME),
    # rising everywhere
    *rows("relu relu6 selu sigmoid hardsigmoid tanh hardtanh logsigmoid softsign exp", kind="rising"),
    *rows("hardtanh", -0.3, 0.2, kind="rising"),
    *rows("leaky_relu", 0.2, kind="rising"),
    *rows("leaky_relu", negative_slope=1.5, kind="rising"),
    *rows("elu celu", 0.7, kind="rising"),
    *rows("softplus", kind="rising"),
    *rows("softplus", beta=3.0, kind="rising"),
    *rows("clamp clip", -0.3, 0.2, kind="rising"),
    *rows("clamp", max=C((6,)), kind="rising"),
    *rows("amax amin", (2, 3), kind="rising"),
    *rows("amax amin", 1, keepdim=True, kind="rising"),
    *rows("max_pool1d", 3, 2, 1, 1, shape=LINE, kind="rising"),
    *rows("max_pool2d", 3, stride=2, padding=1, ceil_mode=True, kind="rising"),
    *rows("max_pool2d", 2, 1, 0, 2, kind="rising"),
    *rows("max_pool3d", 2, shape=VOLUME, kind="rising"),
    *rows("adaptive_max_pool1d", 3, shape=LINE, kind="rising"),
    *rows("adaptive_max_pool2d", 4, kind="rising"),
    *rows("adaptive_max_pool3d", 3, shape=VOLUME, kind="rising"),
    *rows("maximum minimum", C((4, 1, 6)), kind="rising"),
    Case("minimum(constant, x)", lambda x: torch.minimum(C((4, 1, 6)).like(x), x), kind="rising"),
    *rows("pow", 3, kind="rising"),
    *rows("pow", exponent=1, kind="rising"),
    # falling, then rising; tightness below
    *rows("silu mish hardswish abs square gelu", kind="loose"),
    *rows("gelu", approximate="tanh", kind="loose"),
    *rows("pow", 4, kind="loose"),
    *rows("softplus", 0.3, 1.0, kind="loose"),
    # two operands that depend on the input
    Case("x + f(x)", lambda x: x + torch.tanh(x), kind="loose"),
    Case("x - f(x)", lambda x: x - torch.tanh(x), kind="loose"),
    Case("maximum(x, -x)", lambda x: torch.maximum(x, -x), kind="loose"),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def box_of(case: Case, radius: float = 0.4, dtype: torch.dtype = torch.float64, seed: int = 0) -> Box:
    draw = generator(seed)
    centre = torch.randn(case.shape, generator=draw, dtype=dtype)
    reach = radius * torch.rand(case.shape, generator=draw, dtype=dtype)
    return Box(centre - reach, centre + reach)


def test_no_rule_is_missing_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    called = {F.sigmoid, F.tanh}  # which call the tensor's method; that one is seen
    original = Box.__torch_function__

    def spy(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called.add(function)
        return original(function, types, args, kwargs)

    monkeypatch.setattr(Box, "__torch_function__", classmethod(spy))
    for case in CASES:
        case.call(box_of(case))
    missing = [torch.overrides.resolve_name(function) or function for function in RULES if function not in called]
    assert not missing, f"rules without a test: {missing}; add rows to CASES"


@every_case
def test_sampled_points_and_corners_lie_inside(case: Case) -> None:
    assert_sound(case.call, box_of(case), tolerance=1e-12)
    assert_sound(case.call, box_of(case, radius=3.0, seed=1), tolerance=1e-12)


@every_case
def test_a_point_gives_the_forward_pass_bit_for_bit(case: Case) -> None:
    x = torch.randn(case.shape, generator=generator(2))
    for bound, value in zip(parts(case.call(Box(x, x))), parts(case.call(x)), strict=True):
        assert torch.equal(bound.lower, value)
        assert torch.equal(bound.upper, value)


@every_case
def test_a_smaller_box_gives_smaller_bounds(case: Case) -> None:
    large = box_of(case, radius=1.5)
    draw = generator(3)
    one, two = large.sample(draw), large.sample(draw)
    small = Box(torch.minimum(one, two), torch.maximum(one, two))
    for inner, outer in zip(parts(case.call(small)), parts(case.call(large)), strict=True):
        assert excess(outer, inner.lower) <= 1e-12
        assert excess(outer, inner.upper) <= 1e-12


def flat(result: Any) -> Tensor:
    return torch.cat([part.flatten() for part in parts(result)])


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "affine"], ids=lambda case: case.name)
def test_the_worst_corner_attains_the_bound_of_an_affine_map(case: Case) -> None:
    """The gradient of one output is the same everywhere, and its signs are the corner where that output is largest."""
    box = box_of(case)
    bounds = parts(case.call(box))
    lower, upper = (torch.cat([getattr(bound, end).flatten() for bound in bounds]) for end in ("lower", "upper"))
    z = box.centre.requires_grad_()
    values = flat(case.call(z * 1))
    if not values.requires_grad:  # detach
        assert torch.equal(upper, flat(case.call(box.upper.clone())))
        return
    for output in torch.randint(len(values), (6,), generator=generator(4)).tolist():
        (slope,) = torch.autograd.grad(values[output], z, retain_graph=True)
        highest = flat(case.call(box.corner(slope)))[output]
        lowest = flat(case.call(box.corner(-slope)))[output]
        scale = 1e-12 * float(1 + highest.abs() + lowest.abs())
        assert float((upper[output] - highest).detach().abs()) <= scale
        assert float((lower[output] - lowest).detach().abs()) <= scale


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "rising"], ids=lambda case: case.name)
def test_the_ends_attain_the_bound_of_a_rising_function(case: Case) -> None:
    box = box_of(case, radius=2.0)
    bound = case.call(box)
    assert torch.equal(bound.lower, case.call(box.lower))
    assert torch.equal(bound.upper, case.call(box.upper))


# ---- worst corners and numbers worked by hand ------------------------------------------------------------------------

LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Linear(7, 5), (7,)),
    (nn.Conv1d(2, 4, 3, stride=2, padding=1), (2, 9)),
    (nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=1), (4, 6, 6)),
    (nn.Conv2d(3, 4, (3, 1), stride=(1, 2), padding="valid", bias=False), (3, 5, 5)),
    (nn.Conv3d(2, 3, 2, stride=2), (2, 4, 4, 4)),
    (nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), (4, 5)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (3, 4, 4)),
    (nn.ConvTranspose3d(2, 2, 2, dilation=2), (2, 3, 3, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: str(value))
def test_one_layer_is_bounded_by_its_exact_optimum(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """All outputs at once: with J the matrix of the layer, max f_j = J_j^+ u + J_j^- l + b_j."""
    layer = layer.double()
    size = torch.Size(shape).numel()
    draw = generator(5)
    ends = torch.randn(2, 3, *shape, generator=draw, dtype=torch.float64)
    box = Box(*ends.sort(dim=0).values)
    with torch.no_grad():
        offset = layer(torch.zeros(1, *shape, dtype=torch.float64))
        matrix = layer(torch.eye(size, dtype=torch.float64).reshape(size, *shape)) - offset  # [d, outputs]
        matrix, lower, upper = matrix.flatten(1), box.lower.flatten(1), box.upper.flatten(1)
        highest = upper @ matrix.clamp(min=0) + lower @ matrix.clamp(max=0) + offset.flatten(1)
        lowest = lower @ matrix.clamp(min=0) + upper @ matrix.clamp(max=0) + offset.flatten(1)
        bound = layer(box)
    assert torch.allclose(bound.upper.flatten(1), highest, rtol=1e-12, atol=1e-13)
    assert torch.allclose(bound.lower.flatten(1), lowest, rtol=1e-12, atol=1e-13)


def test_numbers_worked_by_hand() -> None:
    """[1, 2, 3] +- 1 through weights 1 and bias 2: 6 + 2 = 8, +- 3. With weights 1, -2, 3: 6 + 2, +- 6."""
    box = Box.around(torch.tensor([[1.0, 2.0, 3.0]]), 1.0, cut=False)
    plain = F.linear(box, torch.ones(1, 3), torch.tensor([2.0]))
    assert (plain.lower.item(), plain.upper.item()) == (5.0, 11.0)
    signed = F.linear(box, torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([2.0]))
    assert (signed.lower.item(), signed.upper.item()) == (2.0, 14.0)
    folded = F.conv1d(box[:, None], torch.tensor([[[1.0, -1.0]]]))  # differences of neighbours: -1 +- 2
    assert folded.lower.tolist() == [[[-3.0, -3.0]]]
    assert folded.upper.tolist() == [[[1.0, 1.0]]]


def test_a_negative_slope_of_batch_norm_by_hand() -> None:
    """(z - 1) / sqrt(4) * (-2) + 3 = 4 - z on [0, 2]: from 2 to 4."""
    box = Box(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
    out = F.batch_norm(box, *(torch.tensor([value]) for value in (1.0, 4.0, -2.0, 3.0)), eps=0.0)
    assert (out.lower.item(), out.upper.item()) == (2.0, 4.0)


# ---- functions that fall and rise ------------------------------------------------------------------------------------

BENT: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "abs": torch.abs,
    "square": torch.square,
    "power 2": lambda x: x**2,
    "power 3": lambda x: x**3,
    "power 6": lambda x: x**6,
    "softplus with an early threshold": lambda x: F.softplus(x, beta=0.3, threshold=0.5),
}


@pytest.mark.parametrize("name", BENT)
def test_bent_functions_are_bounded_tightly(name: str) -> None:
    """The largest and smallest value on a dense grid of each of 300 intervals, many of them around the bend."""
    function = BENT[name]
    draw = generator(6)
    middle = 4 * torch.rand(300, generator=draw, dtype=torch.float64) - 2.5
    reach = 10 ** (3.5 * torch.rand(300, generator=draw, dtype=torch.float64) - 3)
    box = Box(middle - reach, middle + reach)
    grid = torch.lerp(box.lower, box.upper, torch.linspace(0, 1, 4001, dtype=torch.float64)[:, None])
    values, bound = function(box.project(grid)), function(box)
    scale = 1 + values.abs().amax(0)
    assert ((values.amax(0) - bound.upper) / scale).max() <= 1e-15
    assert ((bound.lower - values.amin(0)) / scale).max() <= 1e-15
    step = values.diff(dim=0).abs().amax(0) + 1e-12  # how far a grid can miss an optimum
    assert (bound.upper - values.amax(0) <= step).all()
    assert (values.amin(0) - bound.lower <= step).all()


# ---- what has no bound -----------------------------------------------------------------------------------------------

REFUSED: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "batch norm that trains": nn.BatchNorm2d(4),
    "batch norm without statistics": nn.BatchNorm2d(4, track_running_stats=False).eval(),
    "batch norm with the input's weights": lambda x: F.batch_norm(
        x, torch.zeros(4), torch.ones(4), weight=x.mean((0, 2, 3))
    ),
    "dropout that trains": nn.Dropout(),
    "dropout2d that trains": nn.Dropout2d(),
    "product": lambda x: x * x,
    "product with itself by name": lambda x: torch.mul(x, other=x),
    "matrix product": lambda x: x @ x,
    "quotient": lambda x: 1 / (x + 9),
    "division by zero": lambda x: x / 0,
    "whole division": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "weights from the input": lambda x: F.conv2d(torch.ones(1, 4, 8, 8, dtype=x.dtype), x),
    "bias from the input": lambda x: F.linear(x, torch.ones(4, 6, dtype=x.dtype), x[0, :, 0, 0]),
    "limits from the input": lambda x: torch.ones(6, dtype=x.dtype).clamp(max=x),
    "index from the input": lambda x: torch.ones(3)[(slice(None), x)],
    "falling leaky ReLU": lambda x: F.leaky_relu(x, -0.1),
    "falling ELU": lambda x: F.elu(x, alpha=-1.0),
    "falling CELU": lambda x: F.celu(x, -1.0),
    "falling average": lambda x: F.avg_pool2d(x, 2, 2, 0, False, True, -3),
    "softplus of negative beta": lambda x: F.softplus(x, beta=-1.0),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "scaled sum": lambda x: torch.add(x, x, alpha=-2),
    "power of a fraction": lambda x: x**0.5,
    "negative power": lambda x: x**-1,
    "power of the input": lambda x: 2**x,
    "places of maxima": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "argmax": lambda x: x.argmax(1),
    "where": lambda x: torch.where(torch.ones(6, dtype=torch.bool), x, x),
    "comparison": lambda x: x > 0,
    "comparison with a constant on the left": lambda x: torch.zeros(6, dtype=x.dtype) < x,
    "equality": lambda x: x == x,
    "condition": lambda x: x if x.sum() else -x,
    "number": lambda x: x.sum().item(),
    "transposed": lambda x: x.mT,
    "noise": lambda x: x + torch.randn_like(x),
    "in-place method": lambda x: x.relu_(),
    "assignment": lambda x: x.__setitem__((slice(None), 0), 0.0),
    "assignment to a constant": lambda x: torch.zeros(x.shape, dtype=x.dtype).__setitem__(..., x),
    # each of these would move or wrap an end, silently
    "truth of numbers": lambda x: x.to(torch.bool),
    "bytes": lambda x: x.to(torch.uint8),
    "whole sums": lambda x: x.sum(1, dtype=torch.int8),
    "dtype of a whole tensor": lambda x: x.to(torch.zeros(1, dtype=torch.int32)),
    "bits as whole numbers": lambda x: x.view(torch.int64),
    "bits as other numbers": lambda x: x.view(torch.float32),
    "out=": lambda x: torch.exp(x, out=torch.empty(x.shape, dtype=x.dtype)),
    "out= of a valley": lambda x: torch.square(x, out=torch.empty(x.shape, dtype=x.dtype)),
    "out= into the input": lambda x: torch.exp(torch.ones(x.shape, dtype=x.dtype), out=x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_bound_is_refused_in_one_line(name: str) -> None:
    box = Box.around(torch.rand(2, 4, 6, 6, generator=generator(), dtype=torch.float64), 0.1)
    with pytest.raises(UnsupportedOperation) as caught:
        REFUSED[name](box)
    message = str(caught.value)
    assert message
    assert "\n" not in message


def test_an_unknown_function_is_named_with_a_remedy() -> None:
    with pytest.raises(UnsupportedOperation, match=r"torch\.cumsum.*docs/adding_a_rule\.md"):
        torch.cumsum(Box.around(torch.rand(2, 3), 0.1), dim=1)


def test_a_rule_can_be_added_and_sees_no_inplace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "RULES", dict(RULES))
    monkeypatch.setattr(certood.bounds.interval, "RULES", boxes.RULES)

    def shifted(x: Any, inplace: bool = False, by: float = 1.0) -> Any:
        return torch.overrides.handle_torch_function(shifted, (x,), x, inplace, by)

    @certood.bounds.rule(shifted)
    def shifted_box(box: Box, by: float = 1.0) -> Box:
        return Box.of(box.lower + by, box.upper + by)

    box = Box(torch.zeros(2), torch.ones(2))
    same = shifted(box, True, 3.0)  # what follows `inplace` must not be lost
    assert same is box
    assert box.upper.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("end", ["lower", "upper"])
@every_case
def test_nan_is_never_lost(case: Case, end: str) -> None:
    """Where an end is NaN the bound is NaN in that end at least, for a number there would be a claim."""
    ends = {"lower": torch.zeros(case.shape), "upper": torch.ones(case.shape)}
    ends[end] = torch.full(case.shape, torch.nan)
    for bound in parts(case.call(Box.of(**ends))):
        value = bound.lower if end == "lower" else bound.upper
        other = bound.upper if end == "lower" else bound.lower
        covered = value.isnan() | other.isnan()
        untouched = any(word in case.name for word in ("pad(", "constant", "transpose"))  # outputs of no input
        assert covered.any() if untouched else covered.all()
