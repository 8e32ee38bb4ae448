"""How much is tried: an attack budget is a list of attacks, cheap ones first, because what they settle is settled."""

from certood.attacks.blind import Peek, SquareSearch
from certood.attacks.gradient import Attack, AutoPGD, MonotonePGD
from certood.attacks.starts import STARTS

PEEKS: tuple[Attack, ...] = tuple(Peek(start) for start in STARTS if start != "clean")

QUICK: tuple[Attack, ...] = (
    *PEEKS,
    MonotonePGD("best", steps=20),
    AutoPGD("clean", steps=20),
)

STANDARD: tuple[Attack, ...] = (
    *PEEKS,
    MonotonePGD("best", steps=40),
    MonotonePGD("contrast", steps=20),
    MonotonePGD("split-30", steps=20),
    MonotonePGD("split-50", steps=20),
    SquareSearch("best", steps=100),
    AutoPGD("clean", steps=100),
    AutoPGD("uniform", steps=50),
    MonotonePGD("transfer", steps=30),
    MonotonePGD("best", steps=30),
)

# The paper's (500 steps from 5 starts, 200 from contrast and from what was found elsewhere), and more starts.
PAPER: tuple[Attack, ...] = (
    *PEEKS,
    MonotonePGD("best", steps=200),
    *(MonotonePGD(start, steps=200) for start in ("contrast", "split-30", "split-50", "split-70", "clean")),
    SquareSearch("best", steps=1000),
    *[AutoPGD("near", steps=500)] * 4,
    AutoPGD("uniform", steps=500),
    *(MonotonePGD(start, steps=200) for start in ("decontrast", "uniform", "corner")),
    MonotonePGD("transfer", steps=200),
    MonotonePGD("best", steps=200),
)

BUDGETS: dict[str, tuple[Attack, ...]] = {"quick": QUICK, "standard": STANDARD, "paper": PAPER}
