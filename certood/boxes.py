"""A `Box` is a set of inputs {z : lower <= z <= upper}, coordinate by coordinate. The threat model of the paper is
`Box.around(x, eps)`: all images within eps of x in every pixel, cut to the valid range [0, 1].

A network runs on a `Box` as it runs on a tensor. PyTorch asks `Box.__torch_function__` what each called function does
to a `Box`, and the answer is looked up in `RULES`, which `certood.bounds.interval` fills. A function without a rule
raises `UnsupportedOperation`: a bound is never guessed.
"""

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from certood.errors import BoxError, UnsupportedOperation


class Rule(NamedTuple):
    """What a function does to a Box, and at which position it takes `inplace` (if it does)."""

    bound: Callable[..., Any]
    inplace_position: int | None


RULES: dict[Any, Rule] = {}


class Affine(NamedTuple):
    """Where a Box of logits comes from: `weight @ z + bias` for z in `box`. Lets the last layer be elided (eq. 5)."""

    box: "Box"
    weight: Tensor
    bias: Tensor | None
    ends: tuple[Tensor, ...] = ()  # of the layer's input, in whose memory `box` may lie
    versions: tuple[int, ...] = ()  # of ends, weight and bias, when they were used


def versions(*tensors: Tensor | None) -> tuple[int, ...]:
    """How often each tensor has been changed in place; nothing while compiling and for what torch does not count."""
    if torch.compiler.is_compiling():
        return ()
    return tuple(tensor._version for tensor in tensors if tensor is not None and not tensor.is_inference())


def _operators(function: Any) -> tuple[Callable[["Box", Any], Any], ...]:
    """What `box + other`, `other + box` and `box += other` call, for a function like torch.add."""

    def forward(box: "Box", other: Any) -> Any:
        return box._call(function, box, other)

    def reflected(box: "Box", other: Any) -> Any:
        return box._call(function, other, box)

    def in_place(box: "Box", other: Any) -> Any:
        if isinstance(other, Box) and _overlap(box._lower, other._lower):
            raise UnsupportedOperation("in place on memory that partly overlaps the other operand: clone() that first")
        return box._become(box._call(function, box._kept(), other))

    return forward, reflected, in_place


class Box:
    """All z with `lower <= z <= upper`. One class derives from it: the `SoundBox` of `certood.bounds.rounding`.

    >>> box = Box(torch.tensor([0., 1.]), torch.tensor([2., 1.]))
    >>> box.centre, box.radius
    (tensor([1., 1.]), tensor([1., 0.]))
    """

    __slots__ = ("_aliased", "_lower", "_source", "_upper")
    __array_ufunc__ = None  # numpy leaves `np.float64(2) * box` to the Box

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        if not (isinstance(lower, Tensor) and isinstance(upper, Tensor)):
            raise BoxError(f"a Box needs two tensors, not {type(lower).__name__} and {type(upper).__name__}")
        if lower.shape != upper.shape or lower.dtype != upper.dtype or lower.device != upper.device:
            raise BoxError(
                f"lower and upper differ: {tuple(lower.shape)} {lower.dtype} on {lower.device}, "
                f"{tuple(upper.shape)} {upper.dtype} on {upper.device}"
            )
        if not lower.is_floating_point():
            raise BoxError(f"a Box holds floating-point numbers, not {lower.dtype}; images enter as float in [0, 1]")
        if not torch.compiler.is_compiling():
            if lower.isnan().any() or upper.isnan().any():
                raise BoxError("a Box cannot hold NaN; check the images")
            if (lower > upper).any():
                raise BoxError(f"empty Box: lower exceeds upper in {int((lower > upper).sum())} coordinates")
            if lower.stride() != upper.stride():  # or a reshape would be a view of one end and a copy of the other
                lower, upper = lower.contiguous(), upper.contiguous()
            if lower.untyped_storage().data_ptr() == upper.untyped_storage().data_ptr():
                upper = upper.clone()  # a network may work in place on one end
        self._lower, self._upper = lower, upper
        self._source: Affine | None = None
        self._aliased = False

    @classmethod
    def of(cls, lower: Tensor, upper: Tensor, source: Affine | None = None, aliased: bool = False) -> Self:
        """What rules return: no checks, since they cost a pass over the data and a NaN stays a NaN to the end."""
        box = object.__new__(cls)
        box._lower, box._upper, box._source, box._aliased = lower, upper, source, aliased
        return box

    @classmethod
    def around(cls, x: Tensor, eps: float | Tensor, cut: bool = True) -> Self:
        """{z in [0, 1]^d : |z - x|_inf <= eps}; eps is one number or one per sample. `cut=False` leaves out [0, 1].

        No z of the dtype of x is lost to rounding: eps is rounded up to that dtype, and rounding x - eps to the nearest
        number does not step over any z, since a z >= x - eps is a number itself (rounding is monotone).
        """
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise BoxError("images enter as a float tensor in [0, 1]; divide 8-bit images by 255")
        if not torch.compiler.is_compiling() and (isinstance(eps, bool) or not isinstance(eps, Real | Tensor)):
            raise BoxError(f"eps is a number, or a tensor with one for each image, not {eps!r}")
        if isinstance(eps, Tensor) and eps.ndim == 1:
            if len(eps) != len(x):
                raise BoxError(f"{len(eps)} values of eps for {len(x)} images: give one number, or one for each image")
            eps = eps.reshape(-1, *[1] * (x.ndim - 1))
        if not torch.compiler.is_compiling():
            if not bool(torch.as_tensor(eps >= 0).all()):
                least = float(torch.as_tensor(eps).min())
                raise BoxError(f"eps must be 0 or more, in units of the [0, 1] pixel range; it is {least:g}")
            if cut and not bool(((x >= 0) & (x <= 1)).all()):
                raise BoxError("images must lie in [0, 1] (8-bit images: divide by 255; do not normalise)")
            eps = _not_below(eps, x)
        if cut:
            return cls((x - eps).clamp(min=0), (x + eps).clamp(max=1))
        return cls(x - eps, x + eps)

    @property
    def lower(self) -> Tensor:
        return self._lower

    @property
    def upper(self) -> Tensor:
        return self._upper

    @property
    def centre(self) -> Tensor:
        return torch.add(self._lower / 2, self._upper, alpha=0.5)  # l + u can overflow, and infinity moves no further

    @property
    def radius(self) -> Tensor:
        return (self._upper - self._lower) / 2

    @property
    def source(self) -> Affine | None:
        """The affine map that made this Box, as long as nothing has touched it, its weights, or its input."""
        source = self._source
        if source is None or not source.versions:
            return source
        unchanged = source.versions == versions(*source.ends, source.weight, source.bias)
        return source if unchanged else None

    def contains(self, z: Tensor) -> Tensor:
        """Per sample: does z lie inside?"""  # [N] bool
        return ((z >= self._lower) & (z <= self._upper)).flatten(1).all(1)

    def project(self, z: Tensor) -> Tensor:
        """The point of the Box that is nearest to z."""
        return torch.clamp(z, self._lower, self._upper)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """A point drawn uniformly from the Box."""
        share = torch.rand(self.shape, generator=generator, dtype=self.dtype, device=self.device)
        return self.project(torch.lerp(self._lower, self._upper, share))

    def corner(self, direction: Tensor) -> Tensor:
        """The corner that lies farthest in `direction`: upper where it is positive, lower elsewhere."""
        return torch.where(direction > 0, self._upper, self._lower)

    def select(self, rows: Tensor) -> "Box":
        """The Box of some samples: rows is an index or a mask over the first dimension."""
        return Box.of(self._lower[rows], self._upper[rows])

    def alias(self) -> None:
        """Note that another Box shares this one's memory, so that either can change behind the other's back."""
        self._source, self._aliased = None, True

    # ---- a network's functions ------------------------------------------------------------------------------------

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        for first in ("input", "tensors"):
            if first in kwargs:
                args = (kwargs.pop(first), *args)
        if kwargs.pop("out", None) is not None:
            raise UnsupportedOperation(f"{function.__name__} with out= has no rule: use the value that it returns")
        rule = RULES.get(function)
        if rule is None:
            name = torch.overrides.resolve_name(function) or repr(function)
            raise UnsupportedOperation(
                f"no bound for {name}: certood has no rule for it. Replace it in the network, or add a rule with "
                f"certood.bounds.rule (docs/adding_a_rule.md says how)"
            )
        inplace = kwargs.pop("inplace", False)
        position = rule.inplace_position
        if position is not None and len(args) > position:  # as torch.compile passes it
            args, inplace = args[:position] + args[position + 1 :], args[position]
        if inplace:
            return args[0]._become(cls._apply(function, rule.bound, (args[0]._kept(), *args[1:]), kwargs))
        return cls._apply(function, rule.bound, args, kwargs)

    @classmethod
    def _apply(cls, function: Any, bound: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return bound(*args, **kwargs)

    def _kept(self) -> "Box":
        """Its numbers for a function that is about to write over them, since the backward pass may need them."""
        return self.of(self._lower.clone(), self._upper.clone()) if self._aliased else self

    def _become(self, other: "Box") -> "Box":
        """A network's in-place function. Who holds this Box, or a view of its memory, must see the change."""
        if self._aliased:
            self._lower.copy_(other._lower)
            self._upper.copy_(other._upper)
        else:
            self._lower, self._upper = other._lower, other._upper
        self._source = None
        return self

    def __getattr__(self, name: str) -> Any:
        """`box.relu()` is `torch.Tensor.relu(box)`, and so for every method that a tensor has."""
        if name in ("shape", "ndim", "dtype", "device", "size", "dim", "numel", "is_floating_point"):
            return getattr(self._lower, name)
        function = getattr(Tensor, name, None)
        if name.startswith("_") or function is None:
            raise AttributeError(f"a Box has no attribute {name!r}")
        if not callable(function):
            raise UnsupportedOperation(f"a Box does not know Tensor.{name}: certood has no rule for it")
        return partial(self._call, function, self)

    def __len__(self) -> int:
        return len(self._lower)

    def __getitem__(self, index: Any) -> Any:
        return self._call(Tensor.__getitem__, self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._call(Tensor.__setitem__, self, index, value)  # has no rule

    def __neg__(self) -> Any:
        return self._call(torch.neg, self)

    def __abs__(self) -> Any:
        return self._call(torch.abs, self)

    __add__, __radd__, __iadd__ = _operators(torch.add)
    __sub__, __rsub__, __isub__ = _operators(torch.sub)
    __mul__, __rmul__, __imul__ = _operators(torch.mul)
    __truediv__, __rtruediv__, __itruediv__ = _operators(torch.div)
    __pow__, __rpow__, __ipow__ = _operators(torch.pow)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(torch.floor_divide)
    __mod__, __rmod__, __imod__ = _operators(torch.remainder)
    __matmul__, __rmatmul__ = _operators(torch.matmul)[:2]  # a tensor's `@=` does not work in place

    @classmethod
    def _call(cls, function: Any, *args: Any, **kwargs: Any) -> Any:
        return cls.__torch_function__(function, (cls,), args, kwargs)

    def _refuse(self, *_: Any) -> Any:
        raise UnsupportedOperation(
            "a Box cannot be compared or used as a condition: a guarantee needs one path through the network"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Box(lower={self._lower}, upper={self._upper})"


def _not_below(eps: float | Tensor, x: Tensor) -> Tensor:
    """The least number of the dtype of x that is not below eps."""
    exact = torch.as_tensor(eps, dtype=torch.float64, device=x.device)
    near = exact.to(x.dtype)
    above = torch.nextafter(near, torch.full_like(near, torch.inf))
    return torch.where(near.double() < exact, above, near)


def _overlap(left: Tensor, right: Tensor) -> bool:
    """Do two different views share some numbers? Then torch's answer depends on the order in which it visits them."""
    if torch.compiler.is_compiling() or left.untyped_storage().data_ptr() != right.untyped_storage().data_ptr():
        return False
    places = [(view.shape, view.stride(), view.storage_offset()) for view in (left, right)]
    marks = torch.zeros(left.untyped_storage().nbytes() // left.element_size(), dtype=torch.bool, device=left.device)
    marks.as_strided(*places[0])[...] = True
    return places[0] != places[1] and bool(marks.as_strided(*places[1]).any())
