"""CCU's densities against formulas written another way, scikit-learn, and points of their balls."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import generator
from torch import Tensor, nn

from certood import networks
from certood.mixtures import APART, FLOOR, Gaussians, JointDensity, fit, fit_mixture, metric_of


def mixture(components: int = 3, dimension: int = 4, seed: int = 0) -> Gaussians:
    draw = generator(seed)
    made = Gaussians(components, dimension)
    with torch.no_grad():
        made.means.normal_(0, 3, generator=draw)
        made.log_deviations.normal_(0, 0.4, generator=draw)
        made.log_weights.normal_(0, 1, generator=draw)
    return made


def clusters(count: int = 600, dimension: int = 5, seed: int = 0) -> Tensor:
    draw = generator(seed)
    centres = 8 * torch.randn(3, dimension, generator=draw, dtype=torch.float64)
    return centres[torch.arange(count) % 3] + torch.randn(count, dimension, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_log_density_is_that_of_scikit_learn(seed: int) -> None:
    from sklearn.mixture import GaussianMixture

    made, y = mixture(seed=seed), 4 * torch.randn(50, 4, generator=generator(9), dtype=torch.float64)
    oracle = GaussianMixture(3, covariance_type="spherical")
    with torch.no_grad():
        oracle.means_, oracle.weights_ = made.means.double().numpy(), made.log_weights.double().softmax(0).numpy()
        variances = (2 * made.log_deviations.double()).exp()
        oracle.covariances_, oracle.precisions_cholesky_ = variances.numpy(), variances.rsqrt().numpy()
        assert np.allclose(made.log_density(y).numpy(), oracle.score_samples(y.numpy()), rtol=1e-10)


def test_a_fit_finds_what_is_there() -> None:
    """As likely as scikit-learn's, but for the common variance; all of these clusters have one."""
    from sklearn.mixture import GaussianMixture

    y, made = clusters(), Gaussians(3, 5)
    fit_mixture(made, y, generator())
    theirs = GaussianMixture(3, covariance_type="spherical", random_state=0, n_init=5).fit(y.numpy())
    with torch.no_grad():
        assert float(made.log_density(y).mean()) == pytest.approx(theirs.score(y.numpy()), abs=0.02)
        assert made.log_weights.softmax(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.01)
        assert len(set(made.log_deviations.tolist())) == 1
        assert float(made.log_deviations[0].exp()) == pytest.approx(1, abs=0.05)


def test_more_components_than_images() -> None:
    made = Gaussians(8, 5)
    fit_mixture(made, clusters(5), generator())
    assert all(weight.isfinite().all() for weight in made.parameters())


def test_the_metric_whitens() -> None:
    x = clusters(2000) @ torch.randn(5, 5, generator=generator(1), dtype=torch.float64)
    metric = metric_of(x)
    y = x @ metric.T
    assert torch.allclose(torch.cov(y.T, correction=0), torch.eye(5, dtype=torch.float64), atol=1e-8)
    inverse = torch.linalg.inv(torch.cov(x.T, correction=0))
    difference = x[0] - x[1]
    assert float((metric @ difference).norm()) == pytest.approx(float((difference @ inverse @ difference).sqrt()))


def test_the_metric_of_pixels_that_never_change() -> None:
    x = torch.cat([clusters(300), torch.zeros(300, 2, dtype=torch.float64)], 1)
    variances = torch.linalg.eigvalsh(torch.cov(x.T, correction=0))
    least = torch.linalg.svdvals(metric_of(x))
    assert float(least.max()) == pytest.approx(float((FLOOR * variances.max()) ** -0.5))


@given(st.integers(0, 20), st.floats(0, 30))
def test_bounds_over_a_ball_hold_for_its_points(seed: int, reach: float) -> None:
    made, draw = mixture(seed=seed), generator(seed)
    y = 5 * torch.randn(6, 4, generator=draw, dtype=torch.float64)
    with torch.no_grad():
        most, least, size = made.over_ball(y, torch.full((6,), reach, dtype=torch.float64))
        towards = [mean.double() - y for mean in made.means] + [torch.randn(6, 4, generator=draw).double()]
        for direction in towards:
            length = direction.norm(dim=1, keepdim=True)
            for share in (-1.0, 0.5, 1.0):
                step = direction * (share * reach / length).clamp(max=1.0)  # no farther than the mean itself
                here = made.log_density(y + step)
                assert (least - 2.0**-45 * size <= here).all()
                assert (here <= most + 2.0**-45 * size).all()


def test_the_bounds_of_one_gaussian_are_reached() -> None:
    made, reach = mixture(1), torch.tensor([2.0], dtype=torch.float64)
    with torch.no_grad():
        y = made.means.double() + torch.tensor([[3.0, 0, 0, 0]])
        most, least, _ = made.over_ball(y, reach)
        aside = torch.tensor([[2.0, 0, 0, 0]], dtype=torch.float64)
        assert float(most) == pytest.approx(float(made.log_density(y - aside)), rel=1e-10)
        assert float(least) == pytest.approx(float(made.log_density(y + aside)), rel=1e-10)


def joint(seed: int = 0) -> JointDensity:
    torch.manual_seed(seed)
    made = JointDensity(networks.build("XS", 1, 8, 4), 3, 64, 4)
    fit(made, torch.rand(300, 1, 8, 8), torch.rand(300, 1, 8, 8) / 2, generator())
    return made


def test_logits_are_the_joint_density() -> None:
    """p(y|x) = (p_net(y|x) p(x|i) + p(x|o) / K) / (p(x|i) + p(x|o)), and their sum over y is p(x)."""
    made, x = joint(), torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        logits, y = made(x), made.whitened(x)
        inside, outside = (part.log_density(y)[:, None] for part in (made.inside, made.outside))
        shift = torch.maximum(inside, outside)
        inside, outside = (inside - shift).exp(), (outside - shift).exp()
        classes = made.classifier(x).double().softmax(1)
        assert torch.allclose(logits.softmax(1), (classes * inside + outside / 4) / (inside + outside))
        assert torch.allclose(logits.logsumexp(1), ((inside + outside) / 2).log()[:, 0] + shift[:, 0])


def test_the_second_mixture_stays_the_wider() -> None:
    made = joint()
    with torch.no_grad():
        made.inside.log_deviations[1] = 3.0
        made.outside.log_deviations[2] = 9.0
    made.keep_apart()
    deviations = made.outside.log_deviations.detach()
    assert float((2 * deviations).exp().min()) == pytest.approx(APART * float(torch.tensor(6.0).exp()), rel=1e-5)
    assert deviations[2] == 9.0


def test_a_fit_is_the_same_every_time() -> None:
    one, other = joint().state_dict(), joint().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert isinstance(joint().classifier, nn.Sequential)
