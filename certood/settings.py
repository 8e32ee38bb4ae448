"""A `Recipe` is one training run, complete and frozen: what is written to the run folder is all that made the weights.

What each recipe of the paper sets is in `certood.recipes`.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, final, get_args, get_origin, get_type_hints

import tyro

from certood.errors import RecipeError
from certood.files import parse_json

MethodName = Literal["plain", "oe", "ceda", "acet", "ccu", "good", "prood", "discriminator"]
Scale = Literal["paper", "cpu"]
Policy = Literal["none", "cifar10", "svhn"]
Weights = Literal["pytorch", "ibp"]
Shared = Literal["none", "cifar10"]


@final
@dataclass(frozen=True)
class Recipe:
    name: Annotated[str, tyro.conf.Positional]
    """mnist, svhn, cifar10 or demo; the options' defaults follow from it, from --scale and --method"""
    method: MethodName = "good"
    """what is minimised on out-distribution images"""
    quantile: float = 1.0
    """share of each out-batch whose bound is trained down (good only)"""
    in_set: str = "mnist"
    """in-distribution image set: a name of `certood data list`, or a path"""
    out_set: str = "tiny_imagenet"
    """out-distribution image set for training"""
    out_without: Shared = "none"
    """leave out the classes of the out-set that are classes of this set"""
    in_limit: int = 0
    """use only so many in-images, always the same choice; 0 for all"""
    out_limit: int = 0
    """use only so many out-images, always the same choice; 0 for all"""
    network: str = "S"
    """L and XL as in the paper, M, S, XS smaller; R18, R18x2: ResNet-18 with batch norm"""
    channels: int = 1
    """of the network's input"""
    size: int = 28
    """of the network's input, in pixels"""
    epochs: int = 20
    """passes over the in-distribution set"""
    batch_size: int = 128
    """of the in-batch and of the out-batch"""
    optimiser: Literal["sgd", "adam"] = "adam"
    """sgd is with Nesterov momentum 0.9, adam with coupled weight decay"""
    lr: float = 1e-3
    """learning rate, for mean losses"""
    lr_schedule: Literal["steps", "cosine"] = "cosine"
    """constant between milestones, or half a cosine to 0"""
    lr_milestones: tuple[int, ...] = ()
    """epochs at which the learning rate is multiplied by 0.2 (steps only)"""
    lr_warmup: float = 0.0
    """epochs over which the learning rate rises from 0 (cosine only)"""
    weight_decay: float = 0.0
    """l2 penalty, for mean losses"""
    adam_eps: float = 1e-8
    """Adam's epsilon, for mean losses"""
    clip_gradient: float = 0.0
    """largest norm of the gradient; 0 for no limit"""
    kappa: float = 0.3
    """weight of the out-loss"""
    kappa_start: float = 0.0
    """epoch at which kappa begins to rise from 0"""
    kappa_ramp: float = 0.0
    """epochs over which it rises; 0 for at once"""
    eps: float = 0.3
    """radius of the l_inf box, in units of the [0, 1] pixel range"""
    eps_start: float = 0.0
    """epoch at which eps begins to rise from 0"""
    eps_ramp: float = 0.0
    """epochs over which it rises; 0 for at once"""
    ramps: Literal["epoch", "step"] = "step"
    """schedules move once an epoch (the paper) or at every step"""
    crop_padding: int = 4
    """zero padding for the random crop, in pixels"""
    out_margin: int = 0
    """out-images keep this many pixels more for the crop (MNIST: 32 -> 28)"""
    flip: bool = False
    """random horizontal flips"""
    autoaugment: Policy = "none"
    """AutoAugment policy, for in- and out-images"""
    blobs: float = 0.0
    """share of each out-batch that is shown inside random soft blobs on black"""
    strokes: float = 0.0
    """share of each out-batch that random strokes replace (not for methods with a radius)"""
    pieces: float = 0.0
    """share of each out-batch that mixed pieces of in-images replace (not for methods with a radius)"""
    weights: Weights = "pytorch"
    """how they are drawn: as PyTorch does, or so that the bounds of a deep network neither grow nor shrink"""
    start_from: str = ""
    """run folder or .safetensors file whose weights are the start"""
    seed: int = 0
    """of everything random"""
    attack_steps: int = 40
    """of the attack inside the training loop (acet only)"""
    components: int = 100
    """Gaussians of each mixture (ccu only)"""
    mixture_lr: float = 1e-5
    """learning rate of the mixtures, which drops as lr does (ccu only)"""
    discriminator: str = "DS"
    """D as published, DS smaller, DL as DS with an ordinary last layer; it is trained first (prood only)"""
    discriminator_epochs: int = 20
    """passes over the in-distribution set for it (prood only)"""
    discriminator_lr: float = 1e-3
    """its learning rate, with adam (prood only)"""
    discriminator_shift: float = 3.0
    """added to its answer once it is trained (prood only)"""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """of training, as Lightning Fabric names it"""

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(Recipe).items():
            check(field, getattr(self, field), kind)
        for field in POSITIVE:
            if not getattr(self, field) > 0:
                raise RecipeError(f"{field} must be above 0; it is {getattr(self, field)}")
        for field in NOT_NEGATIVE:
            if not getattr(self, field) >= 0:
                raise RecipeError(f"{field} must be 0 or more; it is {getattr(self, field)}")
        if self.blobs + self.strokes + self.pieces > 1:
            raise RecipeError("blobs, strokes and pieces are shares of one out-batch: together at most 1")
        if self.strokes + self.pieces > 0 and self.method in ("acet", "good", "discriminator"):
            raise RecipeError(
                f"what is within eps of strokes and pieces may be a digit: {self.method} cannot take them"
            )
        if self.quantile > 1:
            raise RecipeError(f"quantile is a share between 0 and 1, not {self.quantile} (GOOD_80 is 0.8)")
        if self.autoaugment != "none" and self.channels != 3:
            raise RecipeError(f"autoaugment is for colour images; this network takes {self.channels} channel")
        for field in ("crop_padding", "out_margin"):  # a crop could be all black
            if getattr(self, field) >= self.size:
                raise RecipeError(f"{field} must be below the image's {self.size} pixels; it is {getattr(self, field)}")
        if self.batch_size > LARGEST_BATCH:
            raise RecipeError(f"batch_size is at most {LARGEST_BATCH:,}, not {self.batch_size:,}: no memory holds more")
        if self.eps > 1:
            raise RecipeError(f"eps is in units of the [0, 1] pixel range, not {self.eps}; divide 8-bit steps by 255")

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        try:
            content = parse_json(text)
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
            return cls(**fields)
        except (ValueError, TypeError, AttributeError) as error:
            raise RecipeError(f"not a recipe: {error}") from None


LARGEST_BATCH = 65_536  # all of MNIST; a slip of the hand beyond it ends with the machine's memory, without a word
POSITIVE = (
    *("channels", "size", "epochs", "batch_size", "lr", "adam_eps", "attack_steps", "components"),
    *("discriminator_epochs", "discriminator_lr"),
)
NOT_NEGATIVE = (
    *("in_limit", "out_limit", "quantile", "lr_warmup", "weight_decay", "clip_gradient", "kappa", "kappa_ramp"),
    *("eps", "eps_ramp", "crop_padding", "out_margin", "seed", "mixture_lr"),
    *("blobs", "strokes", "pieces"),
)


def check(field: str, value: Any, kind: Any) -> None:
    """A value of a setting is of its declared kind, or the error names the setting."""
    if type(value) is int and abs(value) >= 2**63:
        raise RecipeError(f"{field} is absurdly large")
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise RecipeError(f"{field} is one of {', '.join(get_args(kind))}, not {value!r}")
    elif get_origin(kind) is tuple:
        if not (isinstance(value, tuple) and all(type(item) is int and abs(item) < 2**63 for item in value)):
            raise RecipeError(f"{field} is a list of whole numbers, not {value!r}")
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RecipeError(f"{field} is a finite number, not {value!r}")
    elif type(value) is not kind:
        raise RecipeError(f"{field} is a {kind.__name__}, not {value!r}")
