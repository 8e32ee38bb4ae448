"""What can go wrong, as one tree: a caller who catches `CertoodError` catches everything certood raises on purpose.

Every message says what was wrong, which value it was, and what to do about it.
"""


class CertoodError(Exception):
    """The root. The command line prints it as one line and exits with code 2."""


class BoxError(CertoodError, ValueError):
    """A set of inputs that is none: lower above upper, NaN, shapes that differ."""


class UnsupportedOperation(CertoodError, RuntimeError):
    """A network called a function on a `Box` that has no rule, or in a way the rule does not cover.

    No TypeError: after one, Python reads `total += box` as `total = total + box`, which an alias of total does not see.
    """


class NoGuarantee(CertoodError, ArithmeticError):
    """A bound came out as NaN: the network's weights or inputs are not finite, so nothing is guaranteed."""


class PrecisionError(CertoodError, RuntimeError):
    """A guarantee for float32 was asked for while something computes with fewer bits."""


class CertificateError(CertoodError, ValueError):
    """A certificate that cannot be read, that was changed, or that does not follow from its weights and image."""


class NetworkError(CertoodError, ValueError):
    """A network that cannot be built, or whose weights do not fit."""


class DataError(CertoodError, ValueError):
    """An image set that is missing, corrupt, or of the wrong form."""


class MissingSplit(DataError):
    """An image set, or one split of it, that is nowhere to be found."""


class CorruptRecord(DataError):
    """One image of a set that cannot be read, while the set can: training does without it."""


class CorruptBlock(CorruptRecord):
    """Of a set that is read block by block, one that cannot be read: none of its images can."""


class LostFile(DataError):
    """A file of a set that could be read before and cannot now. Training ends, and can go on when it is back."""


class ImageError(CertoodError, ValueError):
    """An image that was given to a guard and does not fit its network: another size, colours, range, or no image."""


class GuardError(CertoodError, RuntimeError):
    """A question that a guard cannot answer: not calibrated, or calibrated for other weights."""


class RecipeError(CertoodError, ValueError):
    """A recipe that does not exist or contradicts itself."""


class RunError(CertoodError, RuntimeError):
    """A run folder that cannot be read, written or resumed."""


class Held(RunError):
    """A folder that another process is writing to."""


class LostProcess(RunError):
    """Of several processes that work together one is gone, or told why it failed."""


class TrainingFailed(CertoodError, RuntimeError):
    """Training diverged or collapsed; the message says what to change."""


class MetricError(CertoodError, ValueError):
    """A metric of nothing, of NaN, or of columns that do not belong together: undefined, and so never a number."""


class AttackError(CertoodError, ValueError):
    """An attack that does not exist, or that was given points and boxes that do not belong together."""


class ScoreError(CertoodError, RuntimeError):
    """A folder of scores that cannot be read, written or continued."""


class BrokenInvariant(CertoodError, ArithmeticError):
    """score <= adversarial <= certified does not hold for a sample: a bug, and no number may be reported."""
