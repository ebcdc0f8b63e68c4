"""Policy-gradient losses: GAE against rlax and a loop, PPO and REINFORCE against NumPy and against each other."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epg.learners.gae import advantages, discounted_sums, returns_to_go, standardize
from epg.learners.ppo import ppo_loss
from epg.learners.reinforce import reinforce_loss
from epg.policies.distributions import Categorical, Gaussian
from epg.settings import PPOSettings

T = 40
GAMMA, LAMBDA = 0.97, 0.9
SETTINGS = PPOSettings(discount=GAMMA, gae_lambda=LAMBDA)
NEVER = jnp.zeros(T, bool)

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def floats(rng: np.random.Generator, *shape: int) -> jax.Array:
    """Draw standard normal float32 numbers."""
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def flags(rng: np.random.Generator, share: float) -> jax.Array:
    """Draw [T] booleans of which about `share` are true."""
    return jnp.asarray(rng.random(T) < share)


def slow_advantages(r, v, v_next, terminated, truncated, gamma, gae_lambda):
    """Sum (gamma lambda)^k delta_{t+k} up to the end of each trajectory, term by term."""
    out = np.zeros(T)
    for t in range(T):
        weight = 1.0
        for k in range(t, T):
            out[t] += weight * (r[k] + (0.0 if terminated[k] else gamma * v_next[k]) - v[k])
            if terminated[k] or truncated[k]:
                break
            weight *= gamma * gae_lambda
    return out


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_gae_is_rlaxs(rng, share):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rlax imports tensorflow-probability, which warns about its own code
        import rlax
    r, values, terminated = floats(rng, T), floats(rng, T + 1), flags(rng, share)
    discount = jnp.where(terminated, 0.0, GAMMA)
    expected = rlax.truncated_generalized_advantage_estimation(r, discount, LAMBDA, values)
    ours = advantages(r, values[:-1], values[1:], terminated, NEVER, GAMMA, LAMBDA)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_gae_bootstraps_across_a_time_limit_only(rng):
    r, v, v_next, terminated = floats(rng, T), floats(rng, T), floats(rng, T), flags(rng, 0.2)
    truncated = flags(rng, 0.2) & ~terminated
    assert terminated.sum() > 2
    assert truncated.sum() > 2
    expected = slow_advantages(*map(np.asarray, (r, v, v_next, terminated, truncated)), 0.97, 0.9)
    np.testing.assert_allclose(
        advantages(r, v, v_next, terminated, truncated, GAMMA, LAMBDA), expected, rtol=1e-4, atol=1e-5
    )


def test_gae_limits(rng):
    r, values, terminated = floats(rng, T), floats(rng, T + 1), flags(rng, 0.1)
    v, v_next = values[:-1], values[1:]
    one_step = r + jnp.where(terminated, 0.0, 0.97 * v_next) - v
    ours = advantages(r, v, v_next, terminated, NEVER, GAMMA, 0.0)
    np.testing.assert_allclose(ours, one_step, rtol=1e-5, atol=1e-6)
    # lambda = 1: discounted rewards to the end (plus the last value where the batch cuts) minus the value.
    bootstrapped = r.at[-1].add(jnp.where(terminated[-1], 0.0, 0.97 * v_next[-1]))
    ours = advantages(r, v, v_next, terminated, NEVER, GAMMA, 1.0)
    np.testing.assert_allclose(ours, returns_to_go(bootstrapped, terminated, 0.97) - v, rtol=1e-4, atol=1e-5)


def test_discounted_sums_by_hand():
    x, decay = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.5, 0.0, 9.0])  # the last decay has nothing to multiply
    np.testing.assert_allclose(discounted_sums(x, decay), [2.0, 2.0, 4.0])


def test_returns_to_go_by_loop(rng):
    r, ended = np.asarray(floats(rng, T)), np.asarray(flags(rng, 0.2))
    expected, following = np.zeros(T), 0.0
    for t in reversed(range(T)):
        following = r[t] + (0.0 if ended[t] else 0.9 * following)
        expected[t] = following
    np.testing.assert_allclose(returns_to_go(jnp.asarray(r), jnp.asarray(ended), 0.9), expected, rtol=1e-5, atol=1e-5)


def test_returns_to_go_by_hand():
    r, ended = jnp.array([1.0, 2.0, 4.0, 8.0]), jnp.array([False, True, False, False])
    np.testing.assert_allclose(returns_to_go(r, ended, 0.5), [2.0, 2.0, 8.0, 8.0])


def test_standardize(rng):
    x = 5.0 + 3.0 * floats(rng, 50)
    np.testing.assert_allclose(standardize(x), (x - np.mean(x)) / np.std(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(standardize(jnp.full(4, 7.0)), 0.0)  # nothing to compare: no advantage, no NaN


@pytest.mark.parametrize(
    ("ratio", "advantage", "surrogate"),
    [(1.1, 2.0, 2.2), (1.5, 2.0, 2.4), (0.5, 2.0, 1.0), (1.5, -2.0, -3.0), (0.5, -2.0, -1.6)],
)
def test_ppo_clips_only_what_would_gain(ratio, advantage, surrogate):
    # One row: choice 0 had probability 0.4 and now has ratio * 0.4; KL and entropy by hand.
    old, new = np.array([0.4, 0.6]), np.array([0.4 * ratio, 1 - 0.4 * ratio])
    kl, entropy = np.sum(old * np.log(old / new)), -np.sum(new * np.log(new))
    settings = replace(SETTINGS, clip=0.2, kl_weight=0.3, entropy_weight=0.05)
    p, q = (Categorical(jnp.asarray(np.log(it)[None], jnp.float32)) for it in (new, old))
    loss = ppo_loss(p, q, jnp.array([0]), jnp.array([advantage]), settings)
    np.testing.assert_allclose(loss, 0.3 * kl - surrogate - 0.05 * entropy, rtol=1e-5)
    gradient = jax.grad(
        lambda logits: ppo_loss(Categorical(logits), q, jnp.array([0]), jnp.array([advantage]), SETTINGS)
    )
    clipped = not np.isclose(surrogate, ratio * advantage)
    assert np.allclose(gradient(p.logits), 0.0, atol=1e-3) == clipped  # only the small KL term is left


def test_ppo_averages_rows(rng):
    mean, log_std, old_mean = floats(rng, 6, 2), floats(rng, 2), floats(rng, 6, 2)
    new, old = Gaussian(mean, log_std), Gaussian(old_mean, log_std)
    action, advantage = floats(rng, 6, 2), floats(rng, 6)
    one = [
        ppo_loss(Gaussian(mean[i : i + 1], log_std), Gaussian(old_mean[i : i + 1], log_std), action[i : i + 1],
                 advantage[i : i + 1], SETTINGS)
        for i in range(6)
    ]  # fmt: skip
    np.testing.assert_allclose(ppo_loss(new, old, action, advantage, SETTINGS), np.mean(one), rtol=1e-5)


def test_reinforce_is_equation_3(rng):
    mean, log_std, action, advantage = floats(rng, 6, 2), floats(rng, 2), floats(rng, 6, 2), floats(rng, 6)
    z = (np.asarray(action) - np.asarray(mean)) / np.exp(log_std)
    log_prob = np.sum(-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi), axis=-1)
    entropy = np.sum(log_std + 0.5 * np.log(2 * np.pi * np.e))
    settings = replace(SETTINGS, entropy_weight=0.1)
    ours = reinforce_loss(Gaussian(mean, log_std), action, advantage, settings)
    np.testing.assert_allclose(ours, -np.mean(advantage * log_prob) - 0.1 * entropy, rtol=1e-4)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_ppo_at_ratio_one_has_the_gradient_of_reinforce(rng, kind):
    out, log_std, advantage = floats(rng, 6, 3), floats(rng, 3), floats(rng, 6)
    make = (lambda it: Gaussian(*it)) if kind == "gaussian" else (lambda it: Categorical(it[0]))
    action = floats(rng, 6, 3) if kind == "gaussian" else jnp.asarray(rng.integers(3, size=6), jnp.int32)
    at = (out, log_std)
    ppo = jax.grad(lambda it: ppo_loss(make(it), make(at), action, advantage, SETTINGS))(at)
    reinforce = jax.grad(lambda it: reinforce_loss(make(it), action, advantage, SETTINGS))(at)
    assert np.abs(ppo[0]).max() > 0.01
    for a, b in zip(ppo, reinforce, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
