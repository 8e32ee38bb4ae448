"""The recipes of the paper: `mnist`, `svhn`, `cifar10`, and the built-in `demo`.

`scale="paper"` is the paper at mean losses: the authors sum over the batch, so that their learning rates and weight
decays, times or divided by 128, are what stands here (docs/fidelity.md derives each). `scale="cpu"` is for two cores.
"""

from collections.abc import Callable
from dataclasses import replace

from certood.errors import RecipeError
from certood.settings import MethodName as MethodName
from certood.settings import Policy, check
from certood.settings import Recipe as Recipe
from certood.settings import Scale as Scale


def mnist(method: MethodName = "good", scale: Scale = "cpu", epochs: int | None = None) -> Recipe:
    """MNIST digits, 28x28 grey; out-images are grey and lose their border; eps 0.3."""
    base = Recipe("mnist", method, in_set="mnist", channels=1, size=28, out_margin=4, kappa=0.3, eps=0.3)
    if scale == "cpu":
        return _for_two_cores(replace(base, lr=2e-3), epochs)
    paper = replace(
        _published_discriminator(base),
        out_set="tiny_images",
        network="L",
        epochs=420 if epochs is None else epochs,
        optimiser="sgd",
        lr=0.005,
        lr_schedule="steps",
        lr_milestones=(50, 100, 200, 300, 350),
        weight_decay=0.05 / 128,
        ramps="epoch",
        kappa_start=2,
        kappa_ramp=100,
        eps_start=10,
        eps_ramp=120,
    )
    if method == "ccu":  # its own paper's: in- and out-loss weigh the same from the first step on
        return replace(paper, kappa=1.0, kappa_start=0, kappa_ramp=0)
    return replace(paper, kappa_ramp=0, eps_start=6, eps_ramp=0) if method == "acet" else paper


def svhn(method: MethodName = "good", scale: Scale = "cpu", epochs: int | None = None) -> Recipe:
    """SVHN house numbers, 32x32 colour; eps 0.03."""
    base = Recipe("svhn", method, in_set="svhn", channels=3, size=32, network="M", kappa=1.0, eps=0.03)
    if scale == "cpu":  # a larger or sudden step stays for most of the run where every answer is the commonest digit
        small = _for_two_cores(replace(base, lr=5e-4), epochs)
        return replace(small, lr_warmup=0.05 * small.epochs)
    return _colour_paper(base, 0.01 / 128, "svhn", epochs)


def cifar10(method: MethodName = "good", scale: Scale = "cpu", epochs: int | None = None) -> Recipe:
    """CIFAR-10 objects, 32x32 colour, mirrored at random; eps 0.01."""
    base = Recipe("cifar10", method, in_set="cifar10", channels=3, size=32, network="M", kappa=1.0, eps=0.01, flip=True)
    base = replace(base, out_without="cifar10")
    if scale == "cpu":
        return _for_two_cores(base, epochs)
    return _colour_paper(base, 0.1 / 128, "cifar10", epochs)


def demo(method: MethodName = "good", scale: Scale = "cpu", epochs: int | None = None) -> Recipe:
    """Handwritten digits against photographs, both carried by installed packages: nothing is downloaded; eps 0.3."""
    base = Recipe("demo", method, in_set="demo_digits", out_set="demo_photos", network="XS", out_margin=4, lr=2e-3)
    if scale != "cpu":
        raise RecipeError("the demo has no paper scale; the paper's recipes are mnist, svhn and cifar10")
    return _for_two_cores(replace(base, batch_size=64), 60 if epochs is None else epochs)


def mnist_shapes(method: MethodName = "good", scale: Scale = "cpu", epochs: int | None = None) -> Recipe:
    """MNIST with harder out-images: shapes on black (docs/results.md tells where these settings come from)."""
    if scale != "cpu":
        raise RecipeError("mnist-shapes has no paper scale: the paper shows its out-images as they are")
    epochs = 50 if epochs is None else epochs
    base = replace(mnist(method, scale, epochs), name="mnist-shapes", blobs=0.4, crop_padding=2, clip_gradient=5.0)
    if method in ("good", "discriminator"):
        return _risen_early(replace(base, kappa=1.0, weights="ibp", lr_warmup=0.01 * epochs))
    if method == "prood":
        base = replace(base, discriminator="DL", discriminator_epochs=round(0.6 * epochs), discriminator_shift=1.0)
    if method == "ccu":  # the likelihood of the mixtures would use up all that a limit leaves of the gradient
        base = replace(base, clip_gradient=0.0)
    return base if method in ("plain", "acet") else replace(base, strokes=0.2, pieces=0.2)


def _risen_early(base: Recipe) -> Recipe:
    """kappa and eps rise from 5 % to 35 % of the run."""
    start, ramp = 0.05 * base.epochs, 0.3 * base.epochs
    return replace(base, kappa_start=start, kappa_ramp=ramp, eps_start=start, eps_ramp=ramp)


def _for_two_cores(base: Recipe, epochs: int | None) -> Recipe:
    """kappa and eps rise together from 10 % to 50 % of the run: steeper ramps collapse to the uniform answer."""
    if base.method == "ccu":  # in- and out-loss weigh the same, as in its own paper
        base = replace(base, kappa=1.0)
    if base.method == "acet":  # an attack at every step: forty forward and backward passes are too many here
        base = replace(base, attack_steps=10)
    epochs = 20 if epochs is None else epochs
    start, ramp = 0.1 * epochs, 0.4 * epochs
    base = replace(base, epochs=epochs, discriminator_epochs=epochs)
    return replace(base, kappa_start=start, kappa_ramp=ramp, eps_start=start, eps_ramp=ramp)


def _colour_paper(base: Recipe, baseline_lr: float, policy: Policy, epochs: int | None) -> Recipe:
    """GOOD starts from a CEDA run and so with a kappa that is past its zero; the baselines start from scratch."""
    common = replace(
        _published_discriminator(base),
        out_set="tiny_images",
        network="XL",
        autoaugment=policy,
        optimiser="adam",
        adam_eps=1e-8 / 128,
        weight_decay=0.005 / 128,
        lr_schedule="steps",
        ramps="epoch",
        mixture_lr=1e-5 / 128,
    )
    if base.method == "good":
        ramps = replace(common, kappa_start=-2, kappa_ramp=300, eps_start=4, eps_ramp=200)
        return replace(ramps, epochs=900 if epochs is None else epochs, lr=1e-4, lr_milestones=(450, 750, 850))
    baseline = replace(common, epochs=420 if epochs is None else epochs, lr=baseline_lr, lr_milestones=(30, 100))
    if base.method == "acet":
        return replace(baseline, epochs=100 if epochs is None else epochs, kappa_start=2, eps_start=6)
    return replace(baseline, kappa_start=60, kappa_ramp=300)


def _published_discriminator(base: Recipe) -> Recipe:
    return replace(base, discriminator="D", discriminator_epochs=1000, discriminator_lr=1e-4)


def discriminator_of(chosen: Recipe) -> Recipe:
    """What a ProoD run trains first. As published: 1,000 epochs, kappa and eps rising over 300 of them, lr times 0.2 at
    500, 750 and 850; at the paper's scale the same shares of however many epochs."""
    epochs = chosen.discriminator_epochs
    first = replace(
        chosen,
        method="discriminator",
        network=chosen.discriminator,
        strokes=0.0,
        pieces=0.0,
        start_from="",
        epochs=epochs,
        optimiser="adam",
        adam_eps=1e-8,
        lr=chosen.discriminator_lr,
        lr_milestones=(),
        weight_decay=0.0,
        kappa=1.0,
        kappa_start=0.0,
    )
    if chosen.lr_schedule == "steps":
        milestones = tuple(round(share * epochs) for share in (0.5, 0.75, 0.85))
        first = replace(first, lr_milestones=milestones, weight_decay=5e-4)
        return replace(first, kappa_ramp=0.3 * epochs, eps_start=0.0, eps_ramp=0.3 * epochs)
    # A short training that begins inside alone, or with a radius, drives all features to 0 and stays there.
    first = replace(first, weights="ibp", lr_warmup=0.01 * epochs)
    return replace(first, kappa_ramp=0.0, eps_start=0.1 * epochs, eps_ramp=0.5 * epochs)


RECIPES: dict[str, Callable[..., Recipe]] = {
    **{"mnist": mnist, "svhn": svhn, "cifar10": cifar10, "demo": demo},
    "mnist-shapes": mnist_shapes,
}


def recipe(name: str, method: MethodName = "good", scale: Scale = "cpu", epochs: int | None = None) -> Recipe:
    if name not in RECIPES:
        raise RecipeError(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    for field, value, kind in (("method", method, MethodName), ("scale", scale, Scale)):
        check(field, value, kind)
    if method == "discriminator":
        chosen = RECIPES[name]("prood", scale)
        return discriminator_of(replace(chosen, discriminator_epochs=epochs or chosen.discriminator_epochs))
    return RECIPES[name](method, scale, epochs)
