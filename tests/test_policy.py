"""Policies: distributions against scipy, initialisation, any shape of network against NumPy, and the contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from epg.core.spaces import Spaces
from epg.policies.base import distribution
from epg.policies.distributions import Categorical, Gaussian, draw_noise, kl_divergence
from epg.policies.linear import LinearPolicy, observation_products
from epg.policies.mlp import NARROW, MlpPolicy, apply_mlp, init_mlp, multiply
from epg.policies.open_loop import OpenLoopPolicy
from epg.settings import PolicySettings

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
    policy = MlpPolicy(PolicySettings(hidden=hidden, log_std=-0.5), Spaces(6, 2)).init(jax.random.key(3))
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


@pytest.mark.parametrize("activation", NUMPY_ACTIVATIONS)
def test_mlp_policy_is_a_gaussian_with_its_log_std_or_a_categorical(rng, activation):
    settings = PolicySettings(hidden=(4,), activation=activation, log_std=-1.0)
    x = jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)
    policy = MlpPolicy(settings, Spaces(3, 2))
    params = policy.init(jax.random.key(0))
    out = distribution(policy, params, x)
    assert isinstance(out, Gaussian)
    np.testing.assert_array_equal(out.mean, apply_mlp(params.mlp, x, activation))
    np.testing.assert_array_equal(out.log_std, [-1.0, -1.0])
    np.testing.assert_array_equal(out.loss_input(), out.mean)
    np.testing.assert_array_equal(out.mode(), out.mean)
    policy = MlpPolicy(settings, Spaces(3, 2, discrete=True))
    params = policy.init(jax.random.key(0))
    out = distribution(policy, params, x)
    assert isinstance(out, Categorical)
    assert params.log_std.shape == (0,)
    logits = np.asarray(apply_mlp(params.mlp, x, activation))
    np.testing.assert_allclose(out.loss_input(), scipy.special.softmax(logits, -1), rtol=1e-5)
    np.testing.assert_array_equal(out.mode(), logits.argmax(-1))


def numpy_products(rows: np.ndarray) -> np.ndarray:
    """Append the products of all pairs of components, as loops."""
    return np.array([[*one, *(one[i] * one[j] for i in range(len(one)) for j in range(i, len(one)))] for one in rows])


@pytest.mark.parametrize("products", [False, True])
def test_linear_policy_is_linear_in_what_it_sees(rng, products):
    observations = rng.normal(size=(5, 3)).astype(np.float32)
    seen = numpy_products(observations) if products else observations
    policy = LinearPolicy(Spaces(3, 2), -1.0, products)
    assert policy.features == seen.shape[1]
    weights = rng.normal(size=(2, seen.shape[1] + 1)).astype(np.float32)
    out = distribution(policy, jnp.asarray(weights), jnp.asarray(observations))
    np.testing.assert_allclose(out.mean, seen @ weights[:, :-1].T + weights[:, -1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out.log_std, [-1.0, -1.0])


def test_linear_policy_starts_with_mean_zero(rng):
    policy = LinearPolicy(Spaces(3, 2), -1.0, products=True)
    params = policy.init(jax.random.key(0))
    assert params.shape == (2, policy.features + 1)
    np.testing.assert_array_equal(
        distribution(policy, params, jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)).mean, 0.0
    )


def test_observation_products_are_all_pairs_once(rng):
    rows = rng.normal(size=(4, 5)).astype(np.float32)
    ours = observation_products(jnp.asarray(rows))
    np.testing.assert_allclose(ours, numpy_products(rows)[:, 5:], rtol=1e-6)
    assert ours.shape == (4, 5 * 6 // 2)


@pytest.mark.parametrize("action", [np.float32([0.3, -7.0]), np.int32(3)])
def test_open_loop_policy_plays_the_given_action(action):
    policy = OpenLoopPolicy()
    out, carry = policy.apply(policy.init(jax.random.key(0)), policy.carry(), jnp.array([jnp.nan, 1.0]))
    played = out.sample(jnp.asarray(action))
    np.testing.assert_array_equal(played, action)
    assert played.dtype == action.dtype
    assert carry == policy.carry()


POLICIES = {
    "mlp gaussian": MlpPolicy(PolicySettings(hidden=(4,)), Spaces(3, 2)),
    "mlp categorical": MlpPolicy(PolicySettings(hidden=(4,)), Spaces(3, 2, discrete=True)),
    "linear": LinearPolicy(Spaces(3, 2), -0.5),
    "linear with products": LinearPolicy(Spaces(3, 2), -0.5, products=True),
}


@pytest.mark.parametrize("name", POLICIES)
def test_contract(rng, name):
    """Any number of leading axes, the same carry structure before and after, differentiable, a pytree of arrays."""
    policy = POLICIES[name]
    params = policy.init(jax.random.key(0))
    x = jnp.asarray(rng.normal(size=(4, 5, 3)), jnp.float32)
    out, carry = policy.apply(params, policy.carry(), x)
    assert jax.tree.structure(carry) == jax.tree.structure(policy.carry())
    assert out.loss_input().shape == (4, 5, 2)
    one = distribution(policy, params, x[1, 2])
    np.testing.assert_allclose(one.loss_input(), out.loss_input()[1, 2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kl_divergence(out, out), np.zeros((4, 5)), atol=1e-6)
    noise = draw_noise(jax.random.key(1), policy.spaces, 3)
    actions = distribution(policy, params, x[0, :3]).sample(noise)
    assert actions.shape == ((3,) if policy.spaces.discrete else (3, 2))

    def total(it):
        return jnp.sum(distribution(policy, it, x[0]).log_prob(jnp.ones_like(actions[:1])))

    slope = jax.grad(total)(params)
    assert jax.tree.structure(slope) == jax.tree.structure(params)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slope) if leaf.size)


@pytest.mark.parametrize("outputs", [1, NARROW - 1, NARROW, 64])
@pytest.mark.parametrize("shape", [(7, NARROW), (2, 7, NARROW), (NARROW,)])
def test_multiply_has_the_gradients_of_the_plain_product(rng, outputs, shape):
    # As many inputs as NARROW: a square weight is among the cases, whose transposed gradient would have its shape too.
    x, weight = (jnp.asarray(rng.normal(size=(3, *it)), jnp.float32) for it in (shape, (NARROW, outputs)))
    ours, theirs = (
        jax.vmap(jax.grad(lambda *it: jnp.sum(jnp.sin(product(*it))), argnums=(0, 1)))(x, weight)  # noqa: B023
        for product in (multiply, jnp.matmul)
    )
    np.testing.assert_array_equal(multiply(x[0], weight[0]), x[0] @ weight[0])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert np.abs(b).max() > 0.1
