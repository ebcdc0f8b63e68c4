"""Policies: distributions against scipy, initialisation, and any shape of network against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from epg.policies.mlp import (
    FEW,
    Categorical,
    Gaussian,
    apply_mlp,
    distribution,
    draw_noise,
    init_mlp,
    init_policy,
    multiply,
)
from epg.settings import PolicySettings, Spaces

pytestmark = pytest.mark.usefixtures("strict_dtypes")

NUMPY_ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "silu": lambda x: x * scipy.special.expit(x),
}


def gaussian(rng: np.random.Generator, rows: int = 5, size: int = 3) -> Gaussian:
    """Make up a Gaussian policy's output."""
    return Gaussian(
        jnp.asarray(rng.normal(size=(rows, size)), jnp.float32), jnp.asarray(rng.normal(size=size), jnp.float32)
    )


def categorical(rng: np.random.Generator, rows: int = 5, size: int = 4) -> Categorical:
    """Make up a categorical policy's output."""
    return Categorical(jnp.asarray(2 * rng.normal(size=(rows, size)), jnp.float32))


def test_gaussian_log_prob_and_entropy_are_scipys(rng):
    policy = gaussian(rng)
    action = rng.normal(size=(5, 3)).astype(np.float32)
    frozen = scipy.stats.norm(np.asarray(policy.mean), np.exp(policy.log_std))
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(action)), frozen.logpdf(action).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(), frozen.entropy().sum(-1), rtol=1e-5)


def test_gaussian_kl_is_the_integral(rng):
    p, q = gaussian(rng, rows=1), gaussian(rng, rows=1)

    parts = []
    for i in range(3):
        (m, s), (n, u) = ((float(d.mean[0, i]), float(np.exp(d.log_std[i]))) for d in (p, q))

        def integrand(x, m=m, s=s, n=n, u=u):
            log_p, log_q = (-0.5 * ((x - mean) / std) ** 2 - np.log(std) for mean, std in ((m, s), (n, u)))
            return np.exp(log_p) / np.sqrt(2 * np.pi) * (log_p - log_q)

        parts.append(scipy.integrate.quad(integrand, m - 12 * s, m + 12 * s)[0])
    np.testing.assert_allclose(p.kl(q), [sum(parts)], rtol=1e-4)
    np.testing.assert_allclose(p.kl(p), 0.0, atol=1e-6)


def test_categorical_is_scipys(rng):
    p, q = categorical(rng), categorical(rng)
    p_, q_ = (scipy.special.softmax(np.asarray(d.logits), -1) for d in (p, q))
    action = rng.integers(4, size=5)
    expected = scipy.special.log_softmax(np.asarray(p.logits), -1)[np.arange(5), action]
    np.testing.assert_allclose(p.log_prob(jnp.asarray(action, jnp.int32)), expected, rtol=1e-5)
    np.testing.assert_allclose(p.entropy(), scipy.stats.entropy(p_, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(p.kl(q), scipy.stats.entropy(p_, q_, axis=-1), rtol=1e-4)
    np.testing.assert_allclose(p.kl(p), 0.0, atol=1e-6)


def test_kl_is_the_mean_log_ratio_of_samples(rng):
    # 200 000 draws; the mean must lie within 5 of its own standard errors.
    for p, q, spaces in (
        (gaussian(rng, 1), gaussian(rng, 1), Spaces(1, 3)),
        (categorical(rng, 1), categorical(rng, 1), Spaces(1, 4, discrete=True)),
    ):
        action = p.sample(draw_noise(jax.random.key(1), spaces, 200_000))
        ratio = np.asarray(p.log_prob(action) - q.log_prob(action), np.float64)
        assert abs(ratio.mean() - p.kl(q)[0]) < 5 * ratio.std() / np.sqrt(ratio.size)


def test_gaussian_sample_scales_the_noise():
    policy = Gaussian(jnp.array([[1.0, -1.0]]), jnp.log(jnp.array([2.0, 0.5])))
    np.testing.assert_allclose(policy.sample(jnp.array([[3.0, 4.0]])), [[7.0, 1.0]], rtol=1e-6)


def test_samples_have_their_distribution(rng):
    # Kolmogorov-Smirnov and chi-square on 20 000 draws with a fixed seed; a wrong distribution gives p below 1e-9.
    policy = gaussian(rng, 1, 1)
    draws = np.asarray(policy.sample(draw_noise(jax.random.key(0), Spaces(1, 1), 20_000)))[:, 0]
    frozen = scipy.stats.norm(float(policy.mean[0, 0]), float(np.exp(policy.log_std[0])))
    assert scipy.stats.kstest(draws, frozen.cdf).pvalue > 1e-3
    choice = categorical(rng, 1)
    draws = np.asarray(choice.sample(draw_noise(jax.random.key(0), Spaces(1, 4, discrete=True), 20_000)))
    expected = 20_000 * scipy.special.softmax(np.asarray(choice.logits[0], np.float64))
    assert scipy.stats.chisquare(np.bincount(draws, minlength=4), expected).pvalue > 1e-3


@pytest.mark.parametrize("hidden", [(), (7,), (16, 5, 9)])
def test_initial_rows_have_norm_one_and_the_last_a_hundredth(hidden):
    policy = init_policy(jax.random.key(3), PolicySettings(hidden=hidden, log_std=-0.5), Spaces(6, 2))
    assert [w.shape for w in policy.mlp.weights] == list(zip((6, *hidden), (*hidden, 2), strict=True))
    for weight in policy.mlp.weights[:-1]:
        np.testing.assert_allclose(np.linalg.norm(weight, axis=0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(policy.mlp.weights[-1], axis=0), 0.01, rtol=1e-5)
    assert not any(np.any(bias) for bias in policy.mlp.biases)
    np.testing.assert_array_equal(policy.log_std, [-0.5, -0.5])


def test_initial_weights_follow_the_key():
    one, same, other = (init_mlp(jax.random.key(seed), (4, 4, 4), 1.0) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.weights[0], same.weights[0])
    assert not np.allclose(one.weights[0], other.weights[0])
    assert not np.allclose(one.weights[0], one.weights[1])  # each layer draws from a key of its own


@pytest.mark.parametrize("activation", NUMPY_ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (7,), (16, 5, 9)])
def test_any_network_is_its_numpy_version(rng, hidden, activation):
    mlp = init_mlp(jax.random.key(0), (3, *hidden, 2), 1.0)
    mlp = jax.tree.map(lambda leaf: leaf + jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), mlp)
    x = rng.normal(size=(4, 5, 3)).astype(np.float32)
    expected = x
    for index, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
        expected = expected @ np.asarray(weight) + np.asarray(bias)
        if index < len(hidden):
            expected = NUMPY_ACTIVATIONS[activation](expected)
    np.testing.assert_allclose(apply_mlp(mlp, jnp.asarray(x), activation), expected, rtol=1e-4, atol=1e-4)


def test_output_is_mean_and_log_std_or_probabilities(rng):
    settings, x = PolicySettings(hidden=(4,), log_std=-1.0), jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)
    policy = init_policy(jax.random.key(0), settings, Spaces(3, 2))
    out = distribution(policy, x, "tanh").output()
    np.testing.assert_array_equal(out, np.hstack([apply_mlp(policy.mlp, x, "tanh"), np.full((5, 2), -1.0)]))
    discrete = Spaces(3, 2, discrete=True)
    choice = init_policy(jax.random.key(0), settings, discrete)
    out = distribution(choice, x, "tanh").output()
    np.testing.assert_allclose(out, scipy.special.softmax(np.asarray(apply_mlp(choice.mlp, x, "tanh")), -1), rtol=1e-5)
    assert out.shape[-1] == discrete.policy_output


@pytest.mark.parametrize("outputs", [1, FEW - 1, FEW, 64])
@pytest.mark.parametrize("shape", [(7, FEW), (2, 7, FEW), (FEW,)])
def test_multiply_has_the_gradients_of_the_plain_product(rng, outputs, shape):
    # Inputs as many as FEW: a square weight is among them, whose gradient would have the right shape turned, too.
    x, weight = (jnp.asarray(rng.normal(size=(3, *it)), jnp.float32) for it in (shape, (FEW, outputs)))
    ours, theirs = (
        jax.vmap(jax.grad(lambda *it: jnp.sum(jnp.sin(product(*it))), argnums=(0, 1)))(x, weight)  # noqa: B023
        for product in (multiply, jnp.matmul)
    )
    np.testing.assert_array_equal(multiply(x[0], weight[0]), x[0] @ weight[0])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert np.abs(b).max() > 0.1
