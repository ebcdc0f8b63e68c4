"""A lifetime against a slow Python loop, what it records, non-finite numbers, and batches."""

import functools
import logging
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from outside import without_resets
from samples import CONTINUOUS, run_epoch, small_settings, some_rollout

from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, lifetime_key, run_key, stream_key
from epg.core.types import LifetimeResult, MetaParams, Rollout
from epg.evolution.loop import Evolution
from epg.evolution.task_sampling import task_sampler
from epg.evolution.worker import build, work_config
from epg.families.native.point import POINT_GOAL
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.learners.registry import policy_gradient
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.normalizer import FixedStats, init_normalizer
from epg.lifetime.policy_init import FRESH, initial_policy
from epg.lifetime.scan_driver import run_lifetime
from epg.lifetime.update import InnerConfig, begin, minibatches, step_scale, update
from epg.lifetime.window import build_experience, push
from epg.policies.base import distribution
from epg.policies.distributions import draw_noise
from epg.policies.linear import LinearPolicy
from epg.policies.mlp import MlpPolicy
from epg.settings import EvolutionSettings, GuidanceSettings, LifetimeSettings, UnstretchedLifetime

SETTINGS = small_settings("point-goal", 6, EvolutionSettings(noise_vectors=4, lifetimes=8, shard=4), "task-features")
ZERO, EPOCH = jnp.zeros(()), jnp.zeros((), jnp.int32)
M, UPDATES = SETTINGS.lifetime.steps_per_update, SETTINGS.lifetime.updates


def slow_lifetime(config, family, task, meta, key):
    """Run Algorithm 2 step by step: NumPy statistics over everything seen, a reset where an episode ends."""
    step, observe, reset = jax.jit(family.step), jax.jit(family.observe), jax.jit(family.reset)
    learn = jax.jit(functools.partial(update, config))
    seen: list[np.ndarray] = []  # observations of finished updates: what the statistics used for acting are made of

    def act(params, observation, noise):
        known = np.array(seen) if seen else np.zeros((1, family.spaces.observation))
        mean, std = known.mean(0), np.maximum(known.std(0), 0.1) if seen else np.ones(known.shape[1])
        if config.obs_stats is not None:
            mean, std = config.obs_stats.mean, config.obs_stats.std
        for index, *held in config.constant_inputs:
            mean[index], std[index] = held
        seeing = jnp.asarray((observation - mean) / std, jnp.float32)
        return distribution(config.policy, params, seeing).sample(noise)

    reset_key, action_key, shuffle_key = (stream_key(key, it) for it in (Stream.RESET, Stream.ACTION, Stream.SHUFFLE))
    learner, state = begin(config, key, meta.policy_init), reset(jax.random.fold_in(reset_key, 0), task)
    returns, kl, rewards, reached = np.full((UPDATES, M), np.nan), [], [], np.zeros(UPDATES, int)
    for index in range(UPDATES):
        noise = draw_noise(jax.random.fold_in(action_key, index), family.spaces, M)
        fresh, rows = jax.random.split(jax.random.fold_in(reset_key, index + 1), M), []
        for t in range(M):
            observation = observe(state, task)
            action = act(learner.params.policy, observation, noise[t])
            state, reward, terminated = step(state, action, task)
            rewards.append(float(reward))
            truncated = len(rewards) == family.horizon and not terminated
            rows.append((observation, action, reward, terminated, jnp.asarray(truncated), observe(state, task)))
            reached[index] += bool(terminated)
            if terminated or truncated:
                returns[index, t], rewards = sum(rewards), []
            if terminated or (truncated and family.resets):
                state = reset(fresh[t], task)
        rollout = Rollout(*(jnp.stack(column) for column in zip(*rows, strict=True)))
        batches = minibatches(config.lifetime, jax.random.fold_in(shuffle_key, index))
        learner, stats = learn(learner, rollout, family.features(task), meta, batches)
        kl.append(stats.kl)
        seen.extend(np.asarray(rollout.observation))
    scores = []
    if not family.resets:  # the lifetime goes on
        total = config.lifetime.scoring_episodes * family.horizon
        noise = draw_noise(jax.random.fold_in(action_key, UPDATES), family.spaces, total)
        fresh = jax.random.split(jax.random.fold_in(reset_key, UPDATES + 1), total)
        for t in range(total):
            action = act(learner.params.policy, observe(state, task), noise[t])
            state, reward, terminated = step(state, action, task)
            scores.append(float(reward) * family.horizon)
            state = reset(fresh[t], task) if terminated else state
        return learner.params.policy, returns, kl, np.mean(scores), np.array(seen), reached
    for key_ in jax.random.split(stream_key(key, Stream.SCORE), config.lifetime.scoring_episodes):
        noise = draw_noise(stream_key(key_, Stream.ACTION), family.spaces, family.horizon)
        state, total = reset(stream_key(key_, Stream.RESET), task), 0.0
        for t in range(family.horizon):
            action = act(learner.params.policy, observe(state, task), noise[t])
            state, reward, terminated = step(state, action, task)
            total += float(reward)
            if terminated:
                break
        scores.append(total)
    return learner.params.policy, returns, kl, np.mean(scores), np.array(seen), reached


STATS = FixedStats(np.float32([0.3, -0.2, 0.1, 0.5]), np.float32([1.0, 2.0, 0.5, 1.5]))

# Time limits only; terminations and time limits both (a pole falls after some ten steps, or the limit comes); fixed
# observation statistics; an observation that is declared constant within a lifetime; ends that are goals, and time
# limits that reset nothing.
CASES = {
    "point-goal": ("point-goal", "learned", 20),
    "random-cart-pole": ("random-cart-pole", "ppo", 12),
    "fixed statistics": ("point-goal", "learned", 20),
    "constant input": ("point-goal", "learned", 20),
    "no resets": ("point-goal", "learned", 20),
}
RARE = ("fixed statistics", "constant input")


@pytest.mark.parametrize("name", [pytest.param(it, marks=pytest.mark.slow) if it in RARE else it for it in CASES])
def test_lifetime_is_the_slow_loop(name):
    known, kind, horizon = CASES[name]
    family, settings = replace(find_family(known), horizon=horizon), SETTINGS
    if name == "fixed statistics":
        settings = replace(settings, policy=replace(settings.policy, obs_stats="fixed"))
    if name == "constant input":
        family = replace(family, constant_inputs=((2, 0.7, 1.0),))
    if name == "no resets":
        family = without_resets(family)
    policy = MlpPolicy(settings.policy, family.spaces)
    if kind == "learned":
        learner = LearnedLoss(settings.loss, policy, family.spaces)
        phi = learner.initial_phi(jax.random.key(0))
    else:
        learner, phi = policy_gradient(kind, settings, family.spaces, policy), jnp.zeros(0)
    config, key = inner_config(settings, learner, policy, family, STATS), lifetime_key(0, Split.TRAIN, 0, 3)
    meta, task = MetaParams(phi, ZERO, FRESH), family.sample(stream_key(key, Stream.TASK))
    result = jax.jit(lambda *args: run_lifetime(config, family, *args))(task, meta, key)
    params, returns, kl, final, seen, reached = slow_lifetime(config, family, task, meta, key)
    np.testing.assert_array_equal(np.isnan(result.episode_return), np.isnan(returns))
    np.testing.assert_allclose(result.episode_return, returns, rtol=1e-4, atol=1e-4)
    lengths = np.diff(np.flatnonzero(~np.isnan(returns.ravel())), prepend=-1)
    assert lengths.max() == horizon
    assert (lengths.min() < horizon) == (name in ("random-cart-pole", "no resets"))
    np.testing.assert_array_equal(result.reached, reached)
    assert (reached.sum() > 0) == (name in ("random-cart-pole", "no resets"))
    np.testing.assert_allclose(result.kl, kl, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(result.final_return, final, rtol=1e-3, atol=1e-3)
    # A pole earns 1 for every step that it stands; nothing falls over in the others.
    lasted = final / horizon if name == "random-cart-pole" else 1.0
    np.testing.assert_allclose(result.survived, lasted, rtol=1e-6)
    for ours, theirs in zip(jax.tree.leaves(result.policy), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(result.window.observation, seen[-config.window :], rtol=1e-3, atol=1e-4)
    assert result.nonfinite == 0
    assert result.env_steps == UPDATES * M + 2 * horizon
    if name == "fixed statistics":
        np.testing.assert_array_equal(result.normalizer.observation.mean, STATS.mean)
    else:
        mean = seen.mean(0)
        mean[2] = 0.7 if name == "constant input" else mean[2]
        np.testing.assert_allclose(result.normalizer.observation.mean, mean, rtol=1e-3, atol=1e-4)


def test_fixed_statistics_must_have_been_measured():
    settings = replace(SETTINGS, policy=replace(SETTINGS.policy, obs_stats="fixed"))
    policy = MlpPolicy(settings.policy, POINT_GOAL.spaces)
    learner = LearnedLoss(settings.loss, policy, POINT_GOAL.spaces)
    with pytest.raises(BadInput, match="the statistics were not measured"):
        inner_config(settings, learner, policy, POINT_GOAL, None)
    assert inner_config(settings, learner, policy, POINT_GOAL, STATS).obs_stats is STATS
    assert inner_config(SETTINGS, learner, policy, POINT_GOAL, STATS).obs_stats is None  # running ones are wanted


# --- how the policy starts ----------------------------------------------------------------------------------------

STARTED = {
    "mlp": MlpPolicy(SETTINGS.policy, CONTINUOUS),
    "categorical": MlpPolicy(SETTINGS.policy, replace(CONTINUOUS, discrete=True)),
    "linear": LinearPolicy(CONTINUOUS, -0.5),
}


@pytest.mark.parametrize("name", STARTED)
def test_an_empty_policy_init_is_a_fresh_draw_and_a_vector_is_the_parameters(name):
    policy, key, empty = STARTED[name], jax.random.key(5), init_normalizer(3, 2)
    fresh = policy.init(key)
    drawn, normalizer = initial_policy(policy, key, empty, FRESH)
    assert normalizer is empty
    for ours, theirs in zip(jax.tree.leaves(drawn), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    given = jnp.arange(ravel_pytree(fresh)[0].size, dtype=jnp.float32)
    started, _ = initial_policy(policy, key, empty, given)
    assert jax.tree.structure(started) == jax.tree.structure(fresh)
    assert [leaf.shape for leaf in jax.tree.leaves(started)] == [leaf.shape for leaf in jax.tree.leaves(fresh)]
    np.testing.assert_array_equal(ravel_pytree(started)[0], given)


def test_a_lifetime_starts_from_its_policy_init():
    run, phi = shard()
    policy = MlpPolicy(SETTINGS.policy, POINT_GOAL.spaces)
    keys = [stream_key(lifetime_key(0, Split.TRAIN, 0, index), Stream.POLICY) for index in range(3)]
    drawn = jnp.stack([ravel_pytree(policy.init(key))[0] for key in keys])
    fresh = run(metas(jnp.tile(phi, (3, 1))), TASKS, EPOCH)
    given = run(metas(jnp.tile(phi, (3, 1)))._replace(policy_init=drawn), TASKS, EPOCH)
    other = run(metas(jnp.tile(phi, (3, 1)))._replace(policy_init=drawn.at[1].add(0.3)), TASKS, EPOCH)
    for row in range(3):
        for a, b in zip(numbers(fresh, row), numbers(given, row), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(given.final_return[0], other.final_return[0])
    assert abs(given.final_return[1] - other.final_return[1]) > 0.1


# --- one update ---------------------------------------------------------------------------------------------------


def config_of(**changes) -> InnerConfig:
    """Return the configuration of the learned loss with other lifetime settings."""
    policy, lifetime = MlpPolicy(SETTINGS.policy, CONTINUOUS), replace(SETTINGS.lifetime, **changes)
    return InnerConfig(LearnedLoss(SETTINGS.loss, policy, CONTINUOUS), policy, lifetime, CONTINUOUS, 24)


def one_update(config, rollout):
    """Return the states before and after one update, its statistics, and the meta-parameters."""
    state = begin(config, jax.random.key(0), FRESH)
    meta = MetaParams(config.learner.initial_phi(jax.random.key(1)), ZERO, FRESH)
    after, stats = jax.jit(functools.partial(update, config))(
        state, rollout, jnp.ones(2), meta, minibatches(config.lifetime, jax.random.key(2))
    )
    return state, after, stats, meta


def test_descent_is_adam_by_hand(rng):
    # Two epochs of two minibatches: four steps of Adam in NumPy, with the learner's own gradients.
    config, rollout = config_of(update_epochs=2), some_rollout(rng, CONTINUOUS, M)
    state, after, _, meta = one_update(config, rollout)
    window = push(state.window, rollout, CONTINUOUS)
    experience = build_experience(window, rollout, state.normalizer, jnp.ones(2))
    prepared = config.learner.prepare(state.params, experience, meta)
    gradient = jax.jit(lambda it, batch: config.learner.gradient(it, experience, prepared, batch, meta))
    flat, unravel = ravel_pytree(state.params)
    theta, m, v = np.asarray(flat, np.float64), 0.0, 0.0
    for t, batch in enumerate(minibatches(config.lifetime, jax.random.key(2)), 1):
        g = np.asarray(ravel_pytree(gradient(unravel(jnp.asarray(theta, jnp.float32)), batch))[0])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta = theta - 1e-2 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    ours = ravel_pytree(after.params)[0]
    np.testing.assert_allclose(ours, theta, rtol=1e-3, atol=2e-5)
    assert np.abs(np.asarray(ours) - np.asarray(flat)).max() > 0.02
    assert (int(after.updates), int(after.nonfinite)) == (1, 0)


def test_step_size_falls_linearly_towards_its_end(rng):
    # One gradient step: Adam's first move is the same but for the step size of the update it belongs to.
    rollout, moves = some_rollout(rng, CONTINUOUS, M), []
    config = config_of(updates=5, update_epochs=1, minibatch=M, learning_rate=1e-2, learning_rate_end=2e-3)
    meta = MetaParams(config.learner.initial_phi(jax.random.key(1)), ZERO, FRESH)
    step = jax.jit(functools.partial(update, config))
    for index in range(5):
        state = begin(config, jax.random.key(0), FRESH)
        state = eqx.tree_at(lambda it: it.updates, state, jnp.int32(index))
        after, _ = step(state, rollout, jnp.ones(2), meta, minibatches(config.lifetime, jax.random.key(2)))
        before, now = (ravel_pytree(it.params.policy)[0] for it in (state, after))
        moves.append(float(jnp.abs(now - before).max()))
    np.testing.assert_allclose(moves, [1e-2, 8.4e-3, 6.8e-3, 5.2e-3, 3.6e-3], rtol=1e-3)  # 2e-3 only after the last
    steady = config_of(updates=5, update_epochs=1, minibatch=M, learning_rate=1e-2)
    first = one_update(replace(config, lifetime=replace(config.lifetime, learning_rate_end=1e-2)), rollout)[1]
    for a, b in zip(*(jax.tree.leaves(it.params) for it in (first, one_update(steady, rollout)[1])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_schedule_may_end_before_the_lifetime_does():
    lifetime = UnstretchedLifetime(updates=5, anneal_updates=2, learning_rate=1e-2, learning_rate_end=2e-3)
    np.testing.assert_allclose([step_scale(lifetime, jnp.int32(it)) for it in range(5)], [1, 0.6, 0.2, 0.2, 0.2])


def test_kl_is_the_closed_form_between_before_and_after(rng):
    # Steps so large that the two directions of the KL differ.
    config, rollout = config_of(learning_rate=0.2), some_rollout(rng, CONTINUOUS, M)
    state, after, stats, _ = one_update(config, rollout)

    def forward(policy):
        hidden = np.tanh(np.asarray(rollout.observation, np.float64) @ policy.mlp.weights[0] + policy.mlp.biases[0])
        return hidden @ policy.mlp.weights[1] + policy.mlp.biases[1], np.exp(np.asarray(policy.log_std, np.float64))

    (m0, s0), (m1, s1) = forward(state.params.policy), forward(after.params.policy)

    def kl(m0, s0, m1, s1):
        return (np.log(s1 / s0) + (s0**2 + (m0 - m1) ** 2) / (2 * s1**2) - 0.5).sum(1).mean()

    np.testing.assert_allclose(stats.kl, kl(m0, s0, m1, s1), rtol=1e-3)
    assert abs(kl(m1, s1, m0, s0) / kl(m0, s0, m1, s1) - 1) > 0.02


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_update_counts_what_is_not_finite(rng, where):
    rollout = some_rollout(rng, CONTINUOUS, M)
    bad = eqx.tree_at(lambda it: getattr(it, where), rollout, getattr(rollout, where).at[3].set(jnp.inf))
    assert int(one_update(config_of(), bad)[1].nonfinite) == 1
    assert int(one_update(config_of(), rollout)[1].nonfinite) == 0


@pytest.mark.parametrize(("minibatch", "epochs"), [(16, 1), (16, 3), (8, 1), (4, 2)])
def test_every_row_is_used_once_per_epoch_of_an_update(minibatch, epochs):
    lifetime = LifetimeSettings(steps_per_update=16, minibatch=minibatch, update_epochs=epochs)
    batches = np.asarray(minibatches(lifetime, jax.random.key(0)))
    assert batches.shape == (epochs * 16 // minibatch, minibatch)
    for one in batches.reshape(epochs, 16):
        np.testing.assert_array_equal(np.sort(one), np.arange(16))
    if minibatch < 16:
        other = np.asarray(minibatches(lifetime, jax.random.key(1)))
        assert not np.array_equal(batches, other)
        assert not np.array_equal(batches.ravel()[:16], np.arange(16))


# --- batches ------------------------------------------------------------------------------------------------------

TASKS = jnp.array([0, 1, 2], jnp.int32)


@functools.cache
def shard():
    """Compile lifetimes of point-goal in short episodes under the learned loss; return it with an initial phi."""
    family = replace(POINT_GOAL, horizon=M // 2)
    policy = MlpPolicy(SETTINGS.policy, family.spaces)
    learner = LearnedLoss(SETTINGS.loss, policy, family.spaces)
    config = inner_config(SETTINGS, learner, policy, family, None)
    return batch_of_lifetimes(config, family, task_sampler(family, 0, Split.TRAIN)), learner.initial_phi(
        jax.random.key(0)
    )


def metas(phis) -> MetaParams:
    """Return the meta-parameters of lifetimes with these losses [S, D] and fresh policies."""
    return MetaParams(phis, ZERO, jnp.zeros((len(phis), 0)))


def numbers(result: LifetimeResult, row: int) -> list[np.ndarray]:
    """Return every number of one lifetime."""
    return [np.asarray(leaf[row]) for leaf in jax.tree.leaves(result)]


def test_a_lifetime_that_is_not_finite_leaves_its_neighbours_alone():
    run, phi = shard()
    finite = jnp.tile(phi, (3, 1))
    good, bad = run(metas(finite), TASKS, EPOCH), run(metas(finite.at[1].set(jnp.nan)), TASKS, EPOCH)
    assert np.isfinite(good.final_return).all()
    assert np.isnan(bad.final_return).tolist() == [False, True, False]
    np.testing.assert_array_equal(bad.nonfinite > 0, [False, True, False])
    for row in (0, 2):
        for a, b in zip(numbers(good, row), numbers(bad, row), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("shipped_compiler")
def test_position_and_size_of_a_batch_change_nothing():
    run, phi = shard()
    phis, order = phi + 0.05 * jax.random.normal(jax.random.key(3), (3, phi.size)), jnp.array([2, 0])
    full, part = run(metas(phis), TASKS, EPOCH), run(metas(phis[order]), TASKS[order], EPOCH)
    for here, there in ((0, 2), (1, 0)):
        for a, b in zip(numbers(part, here), numbers(full, there), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_common_random_numbers():
    run, phi = shard()
    meta = metas(jnp.stack([phi, -phi, phi]))
    same = run(meta, jnp.zeros(3, jnp.int32), EPOCH)
    for a, b in zip(numbers(same, 0), numbers(same, 2), strict=True):
        np.testing.assert_array_equal(a, b)
    # Two episodes end before the first gradient step: same task, policy, resets and noise, whatever the loss.
    early = np.asarray(same.episode_return[:, 0])
    assert np.isfinite(early[0]).sum() == 2
    np.testing.assert_array_equal(early[0], early[1])
    assert not np.array_equal(same.episode_return[0, -1], same.episode_return[1, -1], equal_nan=True)
    other_task = run(meta, TASKS, EPOCH)
    other_epoch = run(meta, jnp.zeros(3, jnp.int32), EPOCH + 1)
    np.testing.assert_array_equal(other_task.final_return[0], same.final_return[0])
    assert len({float(it.final_return[2]) for it in (same, other_task, other_epoch)}) == 3


@pytest.mark.parametrize(("split", "balance"), [(Split.TRAIN, 4), (Split.HELD_OUT, 0)])
def test_tasks_are_the_keys_own_or_spread_evenly_over_the_orbit(split, balance):
    # The reward tells the task: final_return / horizon is the goal's x.
    family = replace(
        POINT_GOAL, horizon=4, step=lambda s, a, t: (POINT_GOAL.step(s, a, t)[0], t.goal[0], jnp.array(False))
    )
    settings = replace(SETTINGS, lifetime=replace(SETTINGS.lifetime, updates=1, scoring_episodes=1))
    policy = MlpPolicy(settings.policy, family.spaces)
    learner = policy_gradient("reinforce", settings, family.spaces, policy)
    config = inner_config(settings, learner, policy, family, None)
    run = batch_of_lifetimes(config, family, task_sampler(family, 0, split, balance))
    index = jnp.array([0, 1, 2, 3, 0, 4, 5, 6, 7], jnp.int32)  # the second four are another task, moved likewise
    x = np.asarray(run(metas(jnp.zeros((9, 0))), index, EPOCH).final_return) / 4
    own = [family.sample(stream_key(lifetime_key(0, split, 0, index), Stream.TASK)).goal for index in range(8)]
    for first, ours in ((0, x[:4]), (4, x[5:])):
        goals = own[first : first + 4]
        angle = np.arctan2(*np.asarray(goals[0])[::-1]) + np.pi / 2 * np.arange(4)
        expected = np.linalg.norm(goals[0]) * np.cos(angle) if balance else [goal[0] for goal in goals]
        np.testing.assert_allclose(ours, expected, atol=1e-5)
        if balance:
            np.testing.assert_allclose(ours.sum(), 0.0, atol=1e-5)
    assert x[0] == x[4]
    assert len(np.unique(x)) == 8  # no two tasks are alike


@pytest.mark.slow
def test_nothing_is_compiled_after_the_first_epoch(caplog):
    settings = replace(
        SETTINGS,
        lifetime=replace(SETTINGS.lifetime, updates=2),
        guidance=GuidanceSettings(learner="ppo", epochs=3),
        evolution=replace(SETTINGS.evolution, step_size_end=0.01, anneal_epochs=3),
    )
    evolution, evaluate, compiled = Evolution(settings), build(work_config(settings, None)), []
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for epoch in range(4):  # alpha 1, 2/3, 1/3, 0
            caplog.clear()
            metrics, _ = run_epoch(evolution, evaluate)
            assert (metrics.epoch, metrics.nonfinite) == (epoch, 0)
            compiled.append(sum("ompil" in record.getMessage() for record in caplog.records))
            caplog.clear()
    assert compiled[0] > 0
    assert compiled[1:] == [0, 0, 0]


def test_streams_and_splits_never_share_a_key():
    keys = [lifetime_key(0, split, epoch, task) for split in Split for epoch in (0, 1) for task in (0, 1)]
    keys += [lifetime_key(1, Split.TRAIN, 0, 0), run_key(0, Stream.NOISE, 5), run_key(0, Stream.LOSS)]
    keys += [stream_key(keys[0], stream) for stream in Stream]
    data = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}
    assert len(data) == len(keys)
