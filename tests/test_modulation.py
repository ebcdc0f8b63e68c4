"""The modulated head: its statistics and mixes against NumPy loops, and what it may and may not see."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from samples import CONTINUOUS, DISCRETE, small_loss, some_experience

from epg.core.errors import BadInput
from epg.core.types import InnerParams, MetaParams
from epg.evolution.strategy import Strategy
from epg.evolution.vector import EvolvedVector
from epg.learners.learned import LearnedLoss
from epg.lifetime.update import minibatches
from epg.loss.blocks import moves
from epg.loss.inputs import constant_columns, head_columns, row_columns, width_of
from epg.loss.modulation import (
    RIDGE,
    init_mixes,
    lasting_directions,
    mix,
    statistics_scale,
    statistics_size,
    transition_statistics,
    window_statistics,
)
from epg.loss.network import memory_output
from epg.policies.mlp import MlpPolicy
from epg.settings import EvolutionSettings, GuidanceSettings, LifetimeSettings, PolicySettings, Settings

REWARD = small_loss(inputs=("reward",), modulation="reward", mixes=3)
TRANSITIONS = small_loss(modulation="transitions", mixes=3)
FEATURES = small_loss(inputs=("task-features",), modulation="task-features", mixes=3)
KINDS = {"reward": REWARD, "transitions": TRANSITIONS, "task-features": FEATURES}


def learned(settings, spaces=CONTINUOUS):
    return LearnedLoss(settings, MlpPolicy(PolicySettings(hidden=(5,)), spaces), spaces)


def trained(learner, key=0):
    """Return a policy that depends on its observation, and a memory."""
    policy = learner.policy.init(jax.random.key(key))
    mlp = policy.mlp._replace(weights=tuple(10.0 * it for it in policy.mlp.weights))
    return InnerParams(policy._replace(mlp=mlp), learner.init(jax.random.key(key + 1)))


def leaky(x):
    return np.where(x > 0, x, 0.2 * x)


def test_reward_statistics_are_means_over_valid_rows(rng):
    experience = some_experience(rng, CONTINUOUS, window=24)
    window, rows = experience.window, []
    for t in np.flatnonzero(np.asarray(window.valid)):
        seen = np.concatenate([window.observation[t], experience.action_trace[t]])
        rows.append(float(window.reward[t]) * seen)
    assert 0 < len(rows) < 24  # some rows are padding
    np.testing.assert_allclose(window_statistics(REWARD, experience), np.mean(rows, axis=0), rtol=1e-4, atol=1e-5)
    assert statistics_size(REWARD, CONTINUOUS) == CONTINUOUS.observation + CONTINUOUS.action


def test_transition_statistics_stay_within_episodes(rng):
    window = some_experience(rng, CONTINUOUS, window=24).window
    valid, done = np.asarray(window.valid), np.asarray(window.done)
    steps = [t for t in range(23) if valid[t] and not done[t]]
    assert 2 < len(steps) < valid.sum() - 1  # some changes cross an end and do not count
    action = np.asarray(window.action)[steps]
    change = np.asarray(window.observation)[[t + 1 for t in steps]] - np.asarray(window.observation)[steps]
    covariance = (action - action.mean(0)).T @ (change - change.mean(0)) / len(steps)
    seen = np.asarray(window.observation)[valid > 0]
    expected = [covariance.ravel(), np.sqrt((change**2).mean(0)), seen.mean(0), np.sqrt((seen**2).mean(0))]
    np.testing.assert_allclose(transition_statistics(window), np.concatenate(expected), rtol=2e-4, atol=2e-4)
    assert statistics_size(TRANSITIONS, CONTINUOUS) == len(np.concatenate(expected))


def test_mixes_are_of_standardized_statistics(rng):
    experience = some_experience(rng, CONTINUOUS, window=24)
    samples = rng.normal(3.0, 2.0, (50, statistics_size(TRANSITIONS, CONTINUOUS))).astype(np.float32)
    scale = statistics_scale(samples)
    np.testing.assert_allclose(scale.mean, samples.mean(0), rtol=1e-5)
    np.testing.assert_allclose(scale.std, samples.std(0), rtol=1e-4)
    plain, zero = init_mixes(jax.random.key(0), TRANSITIONS, CONTINUOUS, None)
    weights, bias = init_mixes(jax.random.key(0), TRANSITIONS, CONTINUOUS, scale)
    standard = (window_statistics(TRANSITIONS, experience) - scale.mean) / scale.std
    np.testing.assert_array_equal(zero, 0.0)
    np.testing.assert_allclose(
        mix(weights, bias, TRANSITIONS, experience), np.tanh(plain @ standard), rtol=1e-3, atol=1e-4
    )


def two_halves(rng, lasting, lifetimes=200):
    """Make up statistics of both halves of lifetimes: some last (std [Q] `lasting`), all have noise of size one."""
    kept = rng.normal(0.0, 1.0, (lifetimes, len(lasting))) * lasting
    return tuple(5.0 + kept + rng.normal(0.0, 1.0, kept.shape) for _half in range(2))


def test_lasting_directions_tell_lifetimes_apart(rng):
    # Of five statistics the fourth lasts best, then the second. Their units do not matter.
    first, second = two_halves(rng, np.array([0.0, 2.0, 0.0, 4.0, 0.0]))
    units = np.array([30.0, 0.1, 1.0, 1.0, 1.0])
    found = np.abs(lasting_directions(first * units, second * units).directions)
    assert [it.argmax() for it in found[:2]] == [3, 1]
    assert (np.sort(found[:2])[:, -1] > 3 * np.sort(found[:2])[:, -2]).all()


def test_lasting_directions_are_generalized_eigenvectors(rng):
    # The definition, solved by SciPy: the covariance of the halves against that of a half with itself.
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    first, second = (it @ turn for it in two_halves(rng, np.array([3.0, 2.0, 1.0, 0.0])))
    scale = lasting_directions(first, second)
    a, b = (first - scale.mean) / scale.std, (second - scale.mean) / scale.std
    np.testing.assert_allclose(np.mean([a.var(0), b.var(0)], axis=0), 1.0, rtol=1e-4)
    between, total = (a.T @ b + b.T @ a) / (2 * len(a)), (a.T @ a + b.T @ b) / (2 * len(a))
    expected = scipy.linalg.eigh(between, total + RIDGE * np.eye(4))[1].T[::-1]
    lengths = np.linalg.norm(scale.directions, axis=1) * np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(np.abs((scale.directions * expected).sum(1)) / lengths, 1.0, rtol=1e-4)
    np.testing.assert_allclose(((a + b) / 2 @ scale.directions.T).std(0), 1.0, rtol=1e-4)


def test_lasting_directions_become_the_mixes(rng):
    settings = small_loss(inputs=("reward",), modulation="lasting-reward", mixes=2)
    size = statistics_size(settings, CONTINUOUS)
    first, second = two_halves(rng, np.linspace(0.0, 3.0, size), 50)
    scale = lasting_directions(first, second)
    nan = np.full((1, size), np.nan)  # of a lifetime that was not finite
    again = lasting_directions(np.concatenate([first, nan]), np.concatenate([second, np.zeros((1, size))]))
    np.testing.assert_array_equal(again.directions, scale.directions)
    weights, bias = init_mixes(jax.random.key(0), settings, CONTINUOUS, scale)
    experience = some_experience(rng, CONTINUOUS, window=24)
    standard = (window_statistics(settings, experience) - scale.mean) / scale.std
    expected = np.tanh(scale.directions[:2] @ standard)
    np.testing.assert_allclose(mix(weights, bias, settings, experience), expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(BadInput, match=r"loss\.mixes must be at most 5 here, the number of statistics, not 9"):
        init_mixes(jax.random.key(0), replace(settings, mixes=9), CONTINUOUS, scale)


def test_a_lifetime_that_was_not_finite_does_not_count():
    samples = np.array([[1.0, 2.0], [np.nan, 9.0], [3.0, 2.0]], np.float32)
    scale = statistics_scale(samples)
    np.testing.assert_allclose(scale.mean, [2.0, 2.0])
    np.testing.assert_allclose(scale.std, [1.0, 1e-3])


@pytest.mark.parametrize("temporal", ["policy", "experience", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_head_sees_mixes_and_their_products(kind, temporal, rng):
    # The whole loss again in NumPy, with weights drawn at random everywhere.
    settings = replace(KINDS[kind], temporal=temporal)
    learner, experience = learned(settings), some_experience(rng, CONTINUOUS, window=24)
    phi = jnp.asarray(rng.normal(0, 0.3, learner.dimension), jnp.float32)
    loss, params, batch = learner.unravel(phi), trained(learner), jnp.array([0, 3, 5])
    rows, size = width_of(row_columns(settings, CONTINUOUS)), experience.reward.shape[0]
    meta = MetaParams(phi, jnp.zeros(()), jnp.zeros(0))

    def total(it):
        from epg.loss.network import cache_inputs, evaluate
        from epg.policies.base import distribution

        cached = cache_inputs(loss, settings, CONTINUOUS, experience)
        return evaluate(
            loss, settings, cached, lambda seen: distribution(learner.policy, it.policy, seen), it, experience, batch
        )

    c = np.tanh(np.asarray(loss.mixes) @ window_statistics(settings, experience) + loss.mix_bias)
    mean = np.asarray(learner.policy.apply(params.policy, (), experience.window.observation)[0].mean)
    mean = mean * np.asarray(experience.window.valid)[:, None]
    window = experience.window
    parts = [window.observation, window.action, window.done[:, None], mean]
    parts += [window.reward[:, None]] if settings.sees_reward else []
    every = np.concatenate([np.asarray(it) for it in parts], axis=1)
    assert every.shape[1] == rows
    features = [experience.task_features] if kind == "task-features" else []
    constants = np.concatenate([memory_output(params.learner), params.policy.log_std, *features])
    context = np.zeros(0)
    if temporal != "none":
        columns = row_columns(settings, CONTINUOUS)["policy"]
        seen, fed = every, constants
        if temporal == "experience":
            seen = np.delete(every, np.arange(columns.start, columns.stop), axis=1)
            fed = constants[settings.memory + CONTINUOUS.action :]
        x = np.concatenate([seen, np.tile(fed, (24, 1))], axis=1)
        for kernel, bias, stride in zip(loss.kernels, loss.kernel_biases, settings.strides, strict=True):
            frames = (len(x) - len(kernel)) // stride + 1
            cuts = [x[frame * stride : frame * stride + len(kernel)] for frame in range(frames)]
            x = np.stack([leaky(np.einsum("ki,kio->o", cut, kernel) + bias) for cut in cuts])
        context = leaky(x.mean(0) @ loss.context + loss.context_bias)
    values = []
    for i in np.asarray(batch):
        row, s = every[24 - size + i], np.asarray(window.observation)[24 - size + i]
        head = np.concatenate([row, *(it * s for it in c), c, constants, context])
        values.append(leaky(head @ loss.head + loss.head_bias) @ loss.output)
    np.testing.assert_allclose(total(params), np.mean(values), rtol=2e-3, atol=2e-4)
    gradient = learner.gradient(params, experience, learner.prepare(params, experience, meta), batch, meta)
    expected = jax.grad(total)(params)
    for ours, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-5)


def test_columns_of_the_head_are_all_used():
    for settings in KINDS.values():
        loss = learned(settings)
        template = loss.unravel(jnp.zeros(loss.dimension))
        width = width_of(head_columns(settings, CONTINUOUS)) + width_of(constant_columns(settings, CONTINUOUS))
        assert template.head.shape[0] == width + settings.context


@pytest.mark.parametrize("temporal", ["experience", "none"])
def test_without_the_policy_in_the_window_old_rows_give_no_gradient(temporal, rng):
    # What the policy does at rows that are not in the minibatch does not matter; in the paper's network it does.
    experience = some_experience(rng, CONTINUOUS, window=24)

    def slope(settings, older):
        learner = learned(settings)
        phi = learner.initial_phi(jax.random.key(0)) + 0.1
        window = replace(experience.window, observation=experience.window.observation.at[:16].add(older))
        moved = replace(experience, window=window)
        meta = MetaParams(phi, jnp.zeros(()), jnp.zeros(0))
        params = trained(learner)
        cached = learner.prepare(params, experience, meta)  # of the unmoved window
        return jax.tree.leaves(learner.gradient(params, moved, cached, jnp.array([1, 2]), meta))

    fast = replace(REWARD, temporal=temporal)
    for a, b in zip(slope(fast, 0.0), slope(fast, 1.0), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.allclose(a, b) for a, b in zip(slope(REWARD, 0.0), slope(REWARD, 1.0), strict=True))


def test_a_modulated_loss_without_reward_cannot_see_it(rng):
    experience = some_experience(rng, CONTINUOUS, window=24)
    learner = learned(TRANSITIONS)
    phi = learner.initial_phi(jax.random.key(0)) + 0.1
    meta, params = MetaParams(phi, jnp.zeros(()), jnp.zeros(0)), trained(learner)

    def gradient(seen):
        return jax.tree.leaves(learner.gradient(params, seen, learner.prepare(params, seen, meta), jnp.arange(4), meta))

    other = replace(experience, reward=-experience.reward, window=replace(experience.window, reward=jnp.ones(24)))
    for a, b in zip(gradient(experience), gradient(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_mixes_stay_fixed_while_the_rest_evolves():
    learner = learned(REWARD)
    phi = learner.initial_phi(jax.random.key(0))
    strategy = Strategy(
        EvolutionSettings(noise_vectors=4, lifetimes=4, shard=4), phi, *moves(REWARD, CONTINUOUS, "all")
    )
    np.testing.assert_array_equal(strategy.phi, phi)
    population = strategy.ask(jax.random.key(1))
    strategy.tell(population, np.array([0.5, -0.1, 0.1, -0.5], np.float32))
    before, after, some = (learner.unravel(jnp.asarray(it)) for it in (phi, strategy.phi, population[0]))
    np.testing.assert_array_equal(after.mixes, before.mixes)
    np.testing.assert_array_equal(some.mixes, before.mixes)
    assert (after.head != before.head).all()
    assert (some.head != before.head).all()


def test_losses_are_the_distance_to_one_target_where_only_that_evolves(rng):
    """Each loss of the population: 0.8 sum |m - target| for one target, linear in what an adaptive target needs."""
    loss = replace(REWARD, window=64, inputs=("reward", "task-features"), hidden=2 * CONTINUOUS.action + 2)
    evolution = EvolutionSettings(noise_vectors=4, lifetimes=4, shard=4, evolves="target")
    vector = EvolvedVector(Settings("point", loss=loss, evolution=evolution), CONTINUOUS)
    strategy, start = Strategy(evolution, vector.initial(), *vector.moves), vector.learned.unravel(vector.initial())
    np.testing.assert_allclose(strategy.phi, vector.initial(), atol=1e-7)
    even, odd = 2 * np.arange(CONTINUOUS.action), 2 * np.arange(CONTINUOUS.action) + 1
    for epoch in range(3):
        population = strategy.ask(jax.random.key(epoch))
        for phi in (*population, strategy.phi):
            one = vector.learned.unravel(jnp.asarray(phi))
            np.testing.assert_allclose(one.head[:, odd], -one.head[:, even], atol=1e-7)
            np.testing.assert_allclose(one.head_bias[odd], -one.head_bias[even], atol=1e-7)
        strategy.tell(population, rng.normal(size=4).astype(np.float32))
    columns, constants = head_columns(loss, CONTINUOUS), constant_columns(loss, CONTINUOUS)
    width = width_of(columns)
    columns |= {name: slice(width + it.start, width + it.stop) for name, it in constants.items()}
    for phi in (*population, strategy.phi):
        after = vector.learned.unravel(jnp.asarray(phi))
        moved = np.asarray(after.head != start.head)
        for name, rows in columns.items():
            target = name in ("observation", "task features", "mixes", "mixes x observation")
            np.testing.assert_array_equal(moved[rows, : 2 * CONTINUOUS.action], target)
        assert not moved[:, 2 * CONTINUOUS.action :].any()  # the log-std's unit, and one without a use
        assert (after.head_bias != start.head_bias)[even].all()
        for name in ("mixes", "mix_bias", "output"):
            np.testing.assert_array_equal(getattr(after, name), getattr(start, name))


def test_only_a_target_action_can_evolve_alone():
    with pytest.raises(BadInput, match=r"evolution\.evolves target needs loss\.init target-action"):
        Settings("point", loss=replace(REWARD, init="random"), evolution=EvolutionSettings(evolves="target"))


def test_an_entry_moves_with_its_source():
    settings = EvolutionSettings(noise_vectors=4, lifetimes=4, shard=4)
    phi, source, factor = jnp.array([1.0, 5.0, 3.0]), np.array([0, 0, 2]), np.array([1.0, -2.0, 0.0])
    plain, moved = Strategy(settings, phi), Strategy(settings, phi, source, factor)
    np.testing.assert_allclose(moved.phi, phi)
    population, noise = moved.ask(jax.random.key(1)), plain.ask(jax.random.key(1)) - np.asarray(phi)
    np.testing.assert_allclose(population[:, 0] - 1, noise[:, 0], atol=1e-6)
    np.testing.assert_allclose(population[:, 1] - 5, -2 * noise[:, 0], atol=1e-6)
    np.testing.assert_array_equal(population[:, 2], 3.0)
    moved.tell(population, np.array([0.5, -0.1, 0.1, -0.5], np.float32))
    assert moved.phi[0] != 1
    np.testing.assert_allclose(moved.phi[1] - 5, -2 * (moved.phi[0] - 1), atol=1e-6)
    assert moved.phi[2] == 3


@pytest.mark.slow
def test_discrete_policies_can_be_modulated(rng):
    learner, experience = learned(TRANSITIONS, DISCRETE), some_experience(rng, DISCRETE, window=24)
    meta = MetaParams(learner.initial_phi(jax.random.key(0)), jnp.zeros(()), jnp.zeros(0))
    params = InnerParams(learner.policy.init(jax.random.key(1)), learner.init(jax.random.key(2)))
    slope = learner.gradient(params, experience, learner.prepare(params, experience, meta), jnp.arange(4), meta)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modulation": "reward"}, "loss.modulation reward needs reward in loss.inputs"),
        ({"modulation": "lasting-reward"}, "loss.modulation lasting-reward needs reward in loss.inputs"),
        ({"modulation": "task-features"}, "needs task-features in loss.inputs"),
        ({"mixes": 0}, "loss.mixes must be above zero"),
        ({"memory": -1}, "loss.memory must lie in"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(BadInput, match=message):
        small_loss(**changes)


@pytest.mark.slow
def test_replay_draws_every_filled_row_of_the_window_and_no_padding(rng):
    experience = some_experience(rng, CONTINUOUS, window=24)  # 16 rows are filled
    settings = replace(REWARD, temporal="none")
    plain = learned(settings)
    replaying = replace(plain, replay=True)
    meta = MetaParams(plain.initial_phi(jax.random.key(0)) + 0.1, jnp.zeros(()), jnp.zeros(0))
    params = trained(plain)

    def gradient(learner, batch):
        return learner.gradient(params, experience, learner.prepare(params, experience, meta), jnp.array(batch), meta)

    def same(one, other):
        return all(np.allclose(a, b, atol=1e-6) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))

    # Numbers count backwards from the newest row, 0, and wrap around after the 16 filled rows.
    assert same(gradient(replaying, [0, 1]), gradient(plain, [7, 6]))
    assert same(gradient(replaying, [16, 33]), gradient(plain, [7, 6]))
    older = [gradient(replaying, [row]) for row in range(8, 16)]
    assert not any(same(it, gradient(plain, [row])) for it in older for row in range(8))
    assert not any(same(one, other) for one in older for other in older if one is not other)


def test_replay_draws_as_many_rows_as_shuffling_would():
    lifetime = LifetimeSettings(steps_per_update=32, minibatch=8, update_epochs=3)
    shuffled, drawn = (minibatches(replace(lifetime, replay=it), jax.random.key(0)) for it in (False, True))
    assert drawn.shape == shuffled.shape == (12, 8)
    assert len(np.unique(np.asarray(drawn) % 1000)) > 80


def test_replay_is_refused_with_guidance():
    with pytest.raises(BadInput, match=r"lifetime\.replay needs guidance\.learner none"):
        Settings("point-goal", lifetime=LifetimeSettings(replay=True), guidance=GuidanceSettings("ppo"))
