"""Learners: one contract, Eq. 10 and its limits bit for bit, and probes with analytic answers."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import SPACES, small_loss, some_experience

from epg.learners import HAND_MADE, Control, Guided, Learned, Ppo, evolved, hand_made
from epg.lifetime.update import Plan, minibatches, start, update
from epg.evolution.worker import batch_of_lifetimes, make_plan
from epg.families import load_family
from epg.families.native.probes import ACTION, BOTH, CHOICE, DISCOUNT, OBSERVATION, VALUE
from epg.lifetime.normalizer import normalise, root_mean_square
from epg.policies.mlp import distribution, draw_noise, init_policy
from epg.core.errors import BadInput
from epg.core.rng import Split
from epg.core.types import Rollout, Trained
from epg.settings import (
    GuidanceSettings,
    LifetimeSettings,
    PolicyGradientSettings,
    PolicySettings,
    Settings,
)

SETTINGS = Settings(
    family="point-goal",
    policy=PolicySettings(hidden=(8,)),
    loss=small_loss(reward=True, progress=True, init="plain"),
    lifetime=LifetimeSettings(steps_per_update=16, updates=6, minibatch=8, passes=2, scoring_episodes=2),
    ppo=PolicyGradientSettings(value_hidden=(8,), entropy_weight=0.01),
)


def learners(spaces):
    """Build every learner: the registered hand-made ones, the learned one, and all their mixes."""
    learned = Learned(SETTINGS.loss, SETTINGS.policy, spaces)
    guides = {name: hand_made(name, SETTINGS, spaces) for name in HAND_MADE}
    mixes = {f"{name} {mode}": Guided(learned, guides[name], mode) for name in guides for mode in ("blend", "add")}
    return guides | {"learned": learned} | mixes


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
    phi = Learned(SETTINGS.loss, SETTINGS.policy, spaces).initial_phi(jax.random.key(0))

    @jax.jit
    def gradient(key):
        trained = Trained(init_policy(key, SETTINGS.policy, spaces), learner.init(key))
        control = Control(phi, jnp.float32(0.5))
        prepared = learner.prepare(trained, experience, control)
        return trained, learner.gradient(trained, experience, prepared, jnp.arange(4), control)

    trained, slope = gradient(jax.random.key(1))
    kinds = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree) for tree in (trained, slope)]
    assert kinds[0] == kinds[1]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    assert np.abs(slope.policy.mlp.weights[-1]).max() > 0


def test_unknown_learner_is_refused():
    with pytest.raises(BadInput, match="unknown learner 'pop'"):
        hand_made("pop", SETTINGS, SPACES["gaussian"])


def test_settings_choose_the_guide():
    spaces = SPACES["gaussian"]
    assert isinstance(evolved(SETTINGS, spaces), Learned)
    guided = evolved(replace(SETTINGS, guidance=GuidanceSettings("ppo", "add")), spaces)
    assert isinstance(guided, Guided)
    assert (type(guided.guide), guided.mode) == (Ppo, "add")


@functools.cache
def lifetimes(family, learner):
    """Compile lifetimes of a family under one learner."""
    return batch_of_lifetimes(make_plan(SETTINGS, learner, family), family, 0, Split.TRAIN)


@pytest.mark.parametrize("name", HAND_MADE)
@pytest.mark.parametrize("family", ["point-goal", "random-cart-pole"])
def test_alpha_one_is_the_guide_bit_for_bit(family, name):
    family = load_family(family)
    guide, learned = hand_made(name, SETTINGS, family.spaces), Learned(SETTINGS.loss, SETTINGS.policy, family.spaces)
    tasks, epoch = jnp.arange(3, dtype=jnp.int32), jnp.zeros((), jnp.int32)
    alone = lifetimes(family, guide)(jnp.zeros((3, 0)), tasks, epoch, jnp.zeros(()))
    # Whatever the learned loss: a sound one, one that explodes, one that is not a number.
    phi = learned.initial_phi(jax.random.key(0)) * jnp.array([1.0, 1e30, jnp.nan])[:, None]
    mixed = lifetimes(family, Guided(learned, guide, "blend"))(phi, tasks, epoch, jnp.ones(()))
    assert_same_bits(mixed, alone)
    assert np.all(alone.kl > 0)
    assert np.isfinite(alone.final_return).all()


@pytest.fixture
def gradients(rng):
    """Return a function (mode, alpha) -> mixed gradient, and the gradients of its two parts."""
    spaces = SPACES["gaussian"]
    learned, guide = Learned(SETTINGS.loss, SETTINGS.policy, spaces), hand_made("ppo", SETTINGS, spaces)
    experience = some_experience(rng, spaces, SETTINGS.loss.window, 8)
    phi = learned.initial_phi(jax.random.key(5))
    policy = init_policy(jax.random.key(1), SETTINGS.policy, spaces)
    memory, critic = learned.init(jax.random.key(2)), guide.init(jax.random.key(3))

    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def slope(learner, mode, pick, alpha):
        extra = {"mine": memory, "hand": critic, "both": (memory, critic)}[pick]
        it, trained = Guided(learned, guide, mode) if learner is None else learner, Trained(policy, extra)
        prepared = it.prepare(trained, experience, Control(phi, alpha))
        return it.gradient(trained, experience, prepared, jnp.arange(6), Control(phi, alpha))

    zero = jnp.zeros(())
    parts = slope(learned, "", "mine", zero), slope(guide, "", "hand", zero)
    return lambda mode, alpha: slope(None, mode, "both", jnp.float32(alpha)), *parts


def test_alpha_zero_is_the_learned_loss_alone(gradients):
    mixed, mine, hand = gradients
    for mode in ("blend", "add"):
        ours = mixed(mode, 0.0)
        assert_same_bits((ours.policy, ours.extra[0]), (mine.policy, mine.extra))
        assert_same_bits(ours.extra[1], jax.tree.map(jnp.zeros_like, hand.extra))


@pytest.mark.parametrize(("mode", "alpha", "weights"), [("blend", 0.3, (0.7, 0.3)), ("add", 0.3, (1.0, 0.3))])
def test_mix_is_the_weighted_sum_of_equation_10(gradients, mode, alpha, weights):
    mixed, mine, hand = gradients
    ours = mixed(mode, alpha)
    expected = jax.tree.map(lambda a, b: weights[0] * a + weights[1] * b, mine.policy, hand.policy)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, ours.policy, expected)
    jax.tree.map(lambda a, b: close(a, weights[0] * b), ours.extra[0], mine.extra)
    jax.tree.map(lambda a, b: close(a, weights[1] * b), ours.extra[1], hand.extra)


# --- probes: what a learner learns where the answer is known ------------------------------------------------------

DISCOUNT_FACTOR = 0.5
PROBE = Settings(
    family="epg.families.native.probes:VALUE",
    policy=PolicySettings(hidden=(16,), log_std=-0.5),
    lifetime=LifetimeSettings(steps_per_update=32, updates=300, minibatch=32, learning_rate=1e-2, scoring_episodes=1),
    ppo=PolicyGradientSettings(discount=DISCOUNT_FACTOR, value_hidden=(16,)),
)


def learned_values(family, observations, seeds: int = 4):
    """Train PPO's value network on a probe; return its values in plain units of reward, [seeds, observations]."""
    learner = Ppo(PROBE.ppo, PROBE.policy, family.spaces)
    plan = Plan(learner, PROBE.lifetime, PROBE.policy, family.spaces, 32)

    def step(state, drawn):
        key, action = drawn
        after, reward, terminated = family.step(state, action, None)
        row = Rollout(state[None], action, reward, terminated, jnp.array(False), after[None])
        return jnp.where(terminated, family.reset(key, None), after), row

    def train(key):
        def one_update(carry, key):
            student, state = carry
            drawn = jax.random.split(key, 32), draw_noise(key, family.spaces, 32)
            state, rollout = jax.lax.scan(step, state, drawn)
            batches = minibatches(plan.lifetime, key)
            student, _ = update(plan, student, rollout, jnp.zeros(0), Control(jnp.zeros(0), jnp.zeros(())), batches)
            return (student, state), None

        keys = jax.random.split(key, PROBE.lifetime.updates)
        student = jax.lax.scan(one_update, (start(plan, key), family.reset(key, None)), keys)[0][0]
        stats = student.normaliser
        values = learner.value(student.trained.extra, normalise(stats.observation, jnp.asarray(observations)[:, None]))
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
    run = batch_of_lifetimes(make_plan(PROBE, hand_made(name, PROBE, family.spaces), family), family, 0, Split.TRAIN)
    outcome = run(jnp.zeros((8, 0)), jnp.arange(8, dtype=jnp.int32), jnp.zeros((), jnp.int32), jnp.zeros(()))
    assert np.all(outcome.nonfinite == 0)

    def at(policy, stats):
        return distribution(policy, normalise(stats.observation, jnp.asarray(observations)[:, None]), "tanh")

    return jax.vmap(at)(outcome.policy, outcome.normaliser)


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


def test_policy_learns_the_best_choice():
    # 8 seeds, 300 updates of 32 steps: probability of the best choice above 0.95, from a start at 1/2.
    assert np.all(policies_at("ppo", CHOICE, [0.0]).output()[:, 0, 1] > 0.95)
