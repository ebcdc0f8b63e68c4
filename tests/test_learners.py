"""Learners: one contract, Eq. 10 and its limits bit for bit, and probes with analytic answers."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probe_families import ACTION, BOTH, CHOICE, DISCOUNT, OBSERVATION, VALUE
from samples import SPACES, small_loss, some_experience

from epg.core.errors import BadInput
from epg.core.rng import Split
from epg.core.types import InnerParams, MetaParams, Rollout
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import find_family
from epg.learners.base import InnerState
from epg.learners.guided import GuidedLearner
from epg.learners.learned import LearnedLoss
from epg.learners.ppo import PPO
from epg.learners.registry import POLICY_GRADIENTS, evolution_learner, policy_gradient
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.normalizer import normalize, root_mean_square
from epg.lifetime.policy_init import FRESH
from epg.lifetime.update import InnerConfig, begin, minibatches, update
from epg.policies.base import distribution
from epg.policies.distributions import draw_noise
from epg.policies.mlp import MlpPolicy
from epg.settings import GuidanceSettings, LifetimeSettings, PolicySettings, PPOSettings, Settings

SETTINGS = Settings(
    family="point-goal",
    policy=PolicySettings(hidden=(8,)),
    loss=small_loss("reward", init="random"),
    lifetime=LifetimeSettings(steps_per_update=16, updates=6, minibatch=8, update_epochs=2, scoring_episodes=2),
    ppo=PPOSettings(entropy_weight=0.01),
)


def policy_of(spaces):
    """Return the small policy that all learners here train."""
    return MlpPolicy(SETTINGS.policy, spaces)


def learned_of(spaces):
    """Return the learned loss."""
    return LearnedLoss(SETTINGS.loss, policy_of(spaces), spaces)


def guide_of(name, spaces):
    """Return PPO or REINFORCE."""
    return policy_gradient(name, SETTINGS, spaces, policy_of(spaces))


def learners(spaces):
    """Build every learner: the registered policy gradients, the learned loss, and all their mixes."""
    learned, guides = learned_of(spaces), {name: guide_of(name, spaces) for name in POLICY_GRADIENTS}
    mixes = {f"guided by {name}": GuidedLearner(learned, guide) for name, guide in guides.items()}
    return guides | {"learned": learned} | mixes


def meta_of(phi, alpha=0.0):
    """Return what evolution gives to one lifetime."""
    return MetaParams(phi, jnp.float32(alpha), FRESH)


def assert_same_bits(one, other) -> None:
    """Require equal structure and equal bits, NaN included."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("name", learners(SPACES["gaussian"]))
def test_contract(rng, kind, name):
    spaces = SPACES[kind]
    learner = learners(spaces)[name]
    experience = some_experience(rng, spaces, SETTINGS.loss.window, 8)
    meta = meta_of(learned_of(spaces).initial_phi(jax.random.key(0)), 0.5)

    @jax.jit
    def gradient(key):
        params = InnerParams(policy_of(spaces).init(key), learner.init(key))
        prepared = learner.prepare(params, experience, meta)
        return params, learner.gradient(params, experience, prepared, jnp.arange(4), meta)

    params, slope = gradient(jax.random.key(1))
    kinds = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (params, slope)]
    assert kinds[0] == kinds[1]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    assert np.abs(slope.policy.mlp.weights[-1]).max() > 0


@pytest.mark.parametrize("scale", [None, 0.25])
def test_update_takes_a_gradient_step_per_minibatch(rng, scale):
    # Plain gradient descent by hand, with the learner's own gradients; prepared once, at the first parameters.
    spaces = SPACES["gaussian"]
    learner, experience = guide_of("ppo", spaces), some_experience(rng, spaces, SETTINGS.loss.window, 8)
    params = InnerParams(policy_of(spaces).init(jax.random.key(0)), learner.init(jax.random.key(1)))
    batches, optimizer, meta = jnp.array([[0, 3, 5], [1, 2, 7]]), optax.sgd(0.1), meta_of(jnp.zeros(0))
    step_scale = None if scale is None else jnp.float32(scale)
    after = learner.update(InnerState(params, optimizer.init(params)), experience, meta, batches, optimizer, step_scale)
    prepared, expected = learner.prepare(params, experience, meta), params
    for batch in batches:
        slope = learner.gradient(expected, experience, prepared, batch, meta)
        expected = jax.tree.map(lambda it, g: it - 0.1 * (scale or 1.0) * g, expected, slope)
    for ours, theirs in zip(jax.tree.leaves(after.params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_unknown_learner_is_refused():
    with pytest.raises(BadInput, match="unknown learner 'pop'"):
        guide_of("pop", SPACES["gaussian"])


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
def test_settings_choose_the_guide(name):
    spaces = SPACES["gaussian"]
    policy = policy_of(spaces)
    assert evolution_learner(SETTINGS, spaces, policy) == learned_of(spaces)
    guided = evolution_learner(replace(SETTINGS, guidance=GuidanceSettings(name)), spaces, policy)
    assert guided == GuidedLearner(learned_of(spaces), guide_of(name, spaces))


@functools.cache
def lifetimes(family, learner):
    """Compile lifetimes of a family under one learner."""
    config = inner_config(SETTINGS, learner, policy_of(family.spaces), family, None)
    return batch_of_lifetimes(config, family, task_sampler(family, 0, Split.TRAIN))


@pytest.mark.parametrize(
    ("family", "name", "compiler"),
    [
        ("point-goal", "ppo", "quick"),
        pytest.param("point-goal", "ppo", "shipped", marks=pytest.mark.slow),
        pytest.param("random-cart-pole", "reinforce", "shipped", marks=pytest.mark.slow),
    ],
)
def test_alpha_one_is_the_guide_bit_for_bit(family, name, compiler, request):
    lifetimes.cache_clear()
    if compiler == "shipped":
        request.getfixturevalue("shipped_compiler")
    family = find_family(family)
    guide, learned = guide_of(name, family.spaces), learned_of(family.spaces)
    tasks, epoch = jnp.arange(3, dtype=jnp.int32), jnp.zeros((), jnp.int32)
    fresh = jnp.zeros((3, 0))
    alone = lifetimes(family, guide)(MetaParams(fresh, jnp.zeros(()), fresh), tasks, epoch)
    # Whatever the learned loss: a finite one, one that overflows, one that is not a number.
    phi = learned.initial_phi(jax.random.key(0)) * jnp.array([1.0, 1e30, jnp.nan])[:, None]
    mixed = lifetimes(family, GuidedLearner(learned, guide))(MetaParams(phi, jnp.ones(()), fresh), tasks, epoch)
    assert_same_bits(mixed, alone)
    assert np.all(alone.kl > 0)
    assert np.isfinite(alone.final_return).all()


@pytest.fixture
def gradients(rng):
    """Return a function alpha -> mixed gradient, and the gradients of its two parts."""
    spaces = SPACES["gaussian"]
    learned, guide = learned_of(spaces), guide_of("ppo", spaces)
    experience = some_experience(rng, spaces, SETTINGS.loss.window, 8)
    phi = learned.initial_phi(jax.random.key(5))
    policy = policy_of(spaces).init(jax.random.key(1))
    memory, critic = learned.init(jax.random.key(2)), guide.init(jax.random.key(3))

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def slope(learner, own, alpha):
        params = InnerParams(policy, {"learned": memory, "guide": critic, "both": (memory, critic)}[own])
        prepared = learner.prepare(params, experience, meta_of(phi, alpha))
        return learner.gradient(params, experience, prepared, jnp.arange(6), meta_of(phi, alpha))

    parts = slope(learned, "learned", 0.0), slope(guide, "guide", 0.0)
    return lambda alpha: slope(GuidedLearner(learned, guide), "both", alpha), *parts


def test_alpha_zero_is_the_learned_loss_alone(gradients):
    mixed, learned, guide = gradients
    ours = mixed(0.0)
    assert_same_bits((ours.policy, ours.learner[0]), (learned.policy, learned.learner))
    assert_same_bits(ours.learner[1], jax.tree.map(jnp.zeros_like, guide.learner))


def test_mix_is_the_weighted_sum_of_equation_10(gradients):
    mixed, learned, guide = gradients
    ours = mixed(0.3)
    expected = jax.tree.map(lambda a, b: 0.7 * a + 0.3 * b, learned.policy, guide.policy)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, ours.policy, expected)
    jax.tree.map(lambda a, b: close(a, 0.7 * b), ours.learner[0], learned.learner)
    jax.tree.map(lambda a, b: close(a, 0.3 * b), ours.learner[1], guide.learner)


# --- probes: what a learner learns where the answer is known ------------------------------------------------------

DISCOUNT_FACTOR = 0.5
PROBE = Settings(
    family="probe_families:VALUE",
    policy=PolicySettings(hidden=(16,), log_std=-0.5),
    lifetime=LifetimeSettings(steps_per_update=32, updates=300, minibatch=32, learning_rate=1e-2, scoring_episodes=1),
    ppo=PPOSettings(discount=DISCOUNT_FACTOR),
)


def learned_values(family, observations, seeds: int = 4):
    """Train PPO's value network on a probe; return its values in units of reward, [seeds, observations]."""
    policy = MlpPolicy(PROBE.policy, family.spaces)
    learner = PPO(PROBE.ppo, policy, family.spaces)
    config = InnerConfig(learner, policy, PROBE.lifetime, family.spaces, 32)

    def step(state, drawn):
        key, action = drawn
        after, reward, terminated = family.step(state, action, None)
        row = Rollout(state[None], action, reward, terminated, jnp.array(False), after[None])
        return jnp.where(terminated, family.reset(key, None), after), row

    def train(key):
        def one_update(carry, key):
            learning, state = carry
            drawn = jax.random.split(key, 32), draw_noise(key, family.spaces, 32)
            state, rollout = jax.lax.scan(step, state, drawn)
            batches = minibatches(config.lifetime, key)
            learning, _ = update(config, learning, rollout, jnp.zeros(0), meta_of(jnp.zeros(0)), batches)
            return (learning, state), None

        keys = jax.random.split(key, PROBE.lifetime.updates)
        carry = begin(config, key, FRESH), family.reset(key, None)
        learning = jax.lax.scan(one_update, carry, keys)[0][0]
        stats = learning.normalizer
        seen = normalize(stats.observation, jnp.asarray(observations)[:, None])
        values = learner.value(learning.params.learner, seen)
        return values * root_mean_square(stats.reward) / (1.0 - DISCOUNT_FACTOR)

    return jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), seeds))


@pytest.mark.parametrize(
    ("family", "observations", "values"),
    [
        (VALUE, [0.0], [1.0]),
        (OBSERVATION, [-1.0, 1.0], [-1.0, 1.0]),
        (DISCOUNT, [0.0, 1.0], [DISCOUNT_FACTOR, 1.0]),
    ],
    ids=lambda it: getattr(it, "name", None),
)
def test_value_network_learns_the_analytic_value(family, observations, values):
    # 4 seeds, 300 updates of 32 steps, every seed within 0.05.
    np.testing.assert_allclose(learned_values(family, observations), np.tile(values, (4, 1)), atol=0.05)


def policies_at(name: str, family, observations):
    """Train 8 policies on a probe; return their distributions at the observations, [8, observations]."""
    policy, fresh = MlpPolicy(PROBE.policy, family.spaces), jnp.zeros((8, 0))
    config = inner_config(PROBE, policy_gradient(name, PROBE, family.spaces, policy), policy, family, None)
    run = batch_of_lifetimes(config, family, task_sampler(family, 0, Split.TRAIN))
    result = run(MetaParams(fresh, jnp.zeros(()), fresh), jnp.arange(8, dtype=jnp.int32), jnp.zeros((), jnp.int32))
    assert np.all(result.nonfinite == 0)

    def at(params, stats):
        return distribution(policy, params, normalize(stats.observation, jnp.asarray(observations)[:, None]))

    return jax.vmap(at)(result.policy, result.normalizer)


@pytest.mark.parametrize(
    ("name", "family", "observations", "best"),
    [
        ("ppo", ACTION, [0.0], [0.5]),
        ("ppo", BOTH, [-1.0, 1.0], [-0.5, 0.5]),
        ("reinforce", ACTION, [0.0], [0.5]),
    ],
)
def test_policy_learns_the_best_action(name, family, observations, best):
    # 8 seeds, 300 updates of 32 steps: every mean within 0.1 of the best action, from a start at 0.
    means = policies_at(name, family, observations).mean[..., 0]
    np.testing.assert_allclose(means, np.tile(best, (8, 1)), atol=0.1)


def test_policy_learns_the_best_discrete_action():
    # 8 seeds, 300 updates of 32 steps: probability of the best action above 0.95, from a start at 1/2.
    assert np.all(policies_at("ppo", CHOICE, [0.0]).loss_input()[:, 0, 1] > 0.95)
