"""Image classifiers that provably know when they don't know.

Names are imported when first used: `certood --help` does not wait for PyTorch, and reading scores does not need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certood import attacks as attacks
    from certood import methods as methods
    from certood import metrics as metrics
    from certood import networks as networks
    from certood import recipes as recipes
    from certood import runs as runs
    from certood.bounds import Box, confidence_upper, logit_gaps, max_gap
    from certood.errors import CertoodError, UnsupportedOperation
    from certood.guard import Guard, load

__version__ = "0.1.0"

__all__ = [
    "Box",
    "CertoodError",
    "Guard",
    "UnsupportedOperation",
    "attacks",
    "confidence_upper",
    "load",
    "logit_gaps",
    "max_gap",
    "methods",
    "metrics",
    "networks",
    "recipes",
    "runs",
]

_HOMES = {
    **dict.fromkeys(("Box", "confidence_upper", "logit_gaps", "max_gap"), "certood.bounds"),
    **dict.fromkeys(("CertoodError", "UnsupportedOperation"), "certood.errors"),
    **dict.fromkeys(("Guard", "load"), "certood.guard"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"certood has no {name!r}; its names are {', '.join(__all__)}")
    home = _HOMES.get(name)
    return getattr(import_module(home), name) if home else import_module(f"certood.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
