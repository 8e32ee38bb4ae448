"""How much is tried: an attack budget is a list of attacks, cheap ones first, because what they settle is settled.

What finds most depends on the model: steps over all pixels on OE, few pixels at a time on GOOD. So all budgets have
both, one from where the other ended.
"""

from certood.attacks.blind import Peek, SquareSearch
from certood.attacks.gradient import Attack, AutoPGD, MonotonePGD
from certood.attacks.sparse import SparseAscent
from certood.attacks.starts import STARTS

PEEKS: tuple[Attack, ...] = tuple(Peek(start) for start in STARTS if start != "clean")

QUICK: tuple[Attack, ...] = (
    *PEEKS,
    SparseAscent("best", steps=20),
    MonotonePGD("best", steps=20),
    AutoPGD("clean", steps=20),
)

STANDARD: tuple[Attack, ...] = (
    *PEEKS,
    SparseAscent("best", steps=40),
    MonotonePGD("best", steps=40),
    *(MonotonePGD(start, steps=20) for start in ("contrast", "split-30", "split-50")),
    AutoPGD("clean", steps=80),
    AutoPGD("uniform", steps=40),
    SquareSearch("best", steps=100),
    MonotonePGD("transfer", steps=30),
    MonotonePGD("best", steps=40),
    SparseAscent("best", steps=40),
)

# The paper's (500 steps from 5 starts, 200 from contrast and from what was found elsewhere), and more.
PAPER: tuple[Attack, ...] = (
    *PEEKS,
    SparseAscent("best", steps=200),
    MonotonePGD("best", steps=200),
    *(MonotonePGD(start, steps=200) for start in ("contrast", "split-30", "split-50", "split-70", "clean")),
    *(SparseAscent(start, steps=200) for start in ("contrast", "split-50", "clean")),
    SquareSearch("best", steps=1000),
    *[AutoPGD("near", steps=500)] * 4,
    AutoPGD("uniform", steps=500),
    *(MonotonePGD(start, steps=200) for start in ("decontrast", "uniform", "corner")),
    MonotonePGD("transfer", steps=200),
    MonotonePGD("best", steps=200),
    SparseAscent("best", steps=200),
)

BUDGETS: dict[str, tuple[Attack, ...]] = {"quick": QUICK, "standard": STANDARD, "paper": PAPER}
