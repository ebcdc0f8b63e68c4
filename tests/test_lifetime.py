"""A lifetime against a slow Python loop, its records, its soundness, and the shards that batch it."""

import functools
import logging
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import CONTINUOUS, small_settings, some_rollout

from epg.learners import Control, Learned, hand_made
from epg.lifetime.scan_driver import run_lifetime
from epg.lifetime.update import Plan, minibatches, start, update
from epg.evolution.loop import Evolution
from epg.evolution.worker import batch_of_lifetimes, build, fitness_of, make_plan
from epg.families import load_family
from epg.families.native.point import POINT_GOAL
from epg.policies.mlp import distribution, draw_noise
from epg.lifetime.window import push, view
from epg.core.rng import Split, Stream, lifetime_key, run_key, stream_key
from epg.core.types import Outcome, Rollout
from epg.settings import (
    EvolutionSettings,
    GuidanceSettings,
    LifetimeSettings,
    to_dict,
)

SETTINGS = small_settings("point-goal", 6, EvolutionSettings(noise_vectors=4, lifetimes=8, shard=4), task_features=True)
ZERO, EPOCH = jnp.zeros(()), jnp.zeros((), jnp.int32)
M, UPDATES = SETTINGS.lifetime.steps_per_update, SETTINGS.lifetime.updates


def slow_lifetime(plan, family, task, control, key):
    """Run Algorithm 2 step by step: NumPy statistics over everything seen, a reset where an episode ends."""
    step, observe, reset = jax.jit(family.step), jax.jit(family.observe), jax.jit(family.reset)
    learn = jax.jit(functools.partial(update, plan))
    seen: list[np.ndarray] = []  # observations of finished updates: what the acting statistics know

    def act(policy, observation, noise):
        known = np.array(seen) if seen else np.zeros((1, family.spaces.observation))
        deviation = np.maximum(known.std(0), 0.1) if seen else 1.0
        return distribution(policy, jnp.asarray((observation - known.mean(0)) / deviation, jnp.float32), "tanh").sample(
            noise
        )

    reset_key, action_key, shuffle_key = (stream_key(key, it) for it in (Stream.RESET, Stream.ACTION, Stream.SHUFFLE))
    student, state, rewards = start(plan, key), reset(jax.random.fold_in(reset_key, 0), task), []
    returns, kl = np.full((UPDATES, M), np.nan), []
    for index in range(UPDATES):
        noise = draw_noise(jax.random.fold_in(action_key, index), family.spaces, M)
        fresh, rows = jax.random.split(jax.random.fold_in(reset_key, index + 1), M), []
        for t in range(M):
            observation = observe(state, task)
            action = act(student.trained.policy, observation, noise[t])
            state, reward, terminated = step(state, action, task)
            rewards.append(float(reward))
            truncated = len(rewards) == family.horizon and not terminated
            rows.append((observation, action, reward, terminated, jnp.asarray(truncated), observe(state, task)))
            if terminated or truncated:
                returns[index, t] = sum(rewards)
                state, rewards = reset(fresh[t], task), []
        rollout = Rollout(*(jnp.stack(column) for column in zip(*rows, strict=True)))
        batches = minibatches(plan.lifetime, jax.random.fold_in(shuffle_key, index))
        student, report = learn(student, rollout, family.features(task), control, batches)
        kl.append(report.kl)
        seen.extend(np.asarray(rollout.observation))
    scores = []
    for key_ in jax.random.split(stream_key(key, Stream.SCORE), plan.lifetime.scoring_episodes):
        noise = draw_noise(stream_key(key_, Stream.ACTION), family.spaces, family.horizon)
        state, total = reset(stream_key(key_, Stream.RESET), task), 0.0
        for t in range(family.horizon):
            state, reward, terminated = step(state, act(student.trained.policy, observe(state, task), noise[t]), task)
            total += float(reward)
            if terminated:
                break
        scores.append(total)
    return student.trained.policy, returns, kl, np.mean(scores)


# Time limits only; and terminations and time limits both (a pole falls after some ten steps, or the limit comes).
CASES = {"point-goal": ("learned", 20), "random-cart-pole": ("ppo", 12)}


@pytest.mark.parametrize("name", CASES)
def test_lifetime_is_the_slow_loop(name):
    learner, horizon = CASES[name]
    family = replace(load_family(name), horizon=horizon)
    if learner == "learned":
        learner = Learned(SETTINGS.loss, SETTINGS.policy, family.spaces)
        phi = learner.initial_phi(jax.random.key(0))
    else:
        learner, phi = hand_made(learner, SETTINGS, family.spaces), jnp.zeros(0)
    plan, control, key = make_plan(SETTINGS, learner, family), Control(phi, ZERO), lifetime_key(0, Split.TRAIN, 0, 3)
    task = family.sample(stream_key(key, Stream.TASK))
    outcome = jax.jit(lambda *args: run_lifetime(plan, family, *args))(task, control, key)
    policy, returns, kl, final = slow_lifetime(plan, family, task, control, key)
    np.testing.assert_array_equal(np.isnan(outcome.episode_return), np.isnan(returns))
    np.testing.assert_allclose(outcome.episode_return, returns, rtol=1e-4, atol=1e-4)
    lengths = np.diff(np.flatnonzero(~np.isnan(returns.ravel())), prepend=-1)
    assert lengths.max() == horizon
    assert (lengths.min() < horizon) == (name == "random-cart-pole")
    np.testing.assert_allclose(outcome.kl, kl, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(outcome.final_return, final, rtol=1e-3, atol=1e-3)
    for ours, theirs in zip(jax.tree.leaves(outcome.policy), jax.tree.leaves(policy), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    assert outcome.nonfinite == 0


# --- one update ---------------------------------------------------------------------------------------------------


def plan_of(**changes) -> Plan:
    """Return a plan of the learned loss with other lifetime settings."""
    settings = replace(SETTINGS, lifetime=replace(SETTINGS.lifetime, **changes))
    return Plan(Learned(settings.loss, settings.policy, CONTINUOUS), settings.lifetime, settings.policy, CONTINUOUS, 24)


def one_update(plan, rollout):
    """Return the students before and after one update, and its report."""
    student = start(plan, jax.random.key(0))
    control = Control(plan.learner.initial_phi(jax.random.key(1)), ZERO)
    after, report = jax.jit(functools.partial(update, plan))(
        student, rollout, jnp.ones(2), control, minibatches(plan.lifetime, jax.random.key(2))
    )
    return student, after, report, control


def test_descent_is_adam_by_hand(rng):
    # Two passes of two minibatches: four steps of Adam in NumPy, with the learner's own gradients.
    plan, rollout = plan_of(passes=2), some_rollout(rng, CONTINUOUS, M)
    student, after, _, control = one_update(plan, rollout)
    progress = jnp.array([1 / UPDATES, np.log10(UPDATES)], jnp.float32)
    experience = view(push(student.window, rollout, CONTINUOUS), rollout, student.normaliser, jnp.ones(2), progress)
    prepared = plan.learner.prepare(student.trained, experience, control)
    gradient = jax.jit(lambda it, batch: plan.learner.gradient(it, experience, prepared, batch, control))
    flat, unravel = jax.flatten_util.ravel_pytree(student.trained)
    theta, m, v = np.asarray(flat, np.float64), 0.0, 0.0
    for t, batch in enumerate(minibatches(plan.lifetime, jax.random.key(2)), 1):
        g = np.asarray(jax.flatten_util.ravel_pytree(gradient(unravel(jnp.asarray(theta, jnp.float32)), batch))[0])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta = theta - 1e-2 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    ours = jax.flatten_util.ravel_pytree(after.trained)[0]
    np.testing.assert_allclose(ours, theta, rtol=1e-3, atol=2e-5)
    assert np.abs(np.asarray(ours) - np.asarray(flat)).max() > 0.02
    assert (int(after.updates), int(after.nonfinite)) == (1, 0)


def test_correlations_are_means_of_the_windows_products(rng):
    # The first update: nothing is known yet, so rows are seen as they are; two thirds of the window are padding.
    rollout = some_rollout(rng, CONTINUOUS, M)
    _, _, silent, _ = one_update(plan_of(), rollout)
    assert silent.correlations.shape == (0,)
    _, _, report, _ = one_update(replace(plan_of(), correlations=True), rollout)
    np.testing.assert_array_equal(report.kl, silent.kl)
    end = np.asarray(rollout.terminated) | np.asarray(rollout.truncated)
    total = np.zeros(CONTINUOUS.observation + CONTINUOUS.action)
    for t in range(M):
        trace, begun = np.zeros(CONTINUOUS.action), max([k + 1 for k in range(t) if end[k]], default=0)
        for k in range(max(begun, t - 15), t + 1):
            trace += (1 - 0.9**2) ** 0.5 * 0.9 ** (t - k) * np.asarray(rollout.action[k])
        total += float(rollout.reward[t]) * np.concatenate([rollout.observation[t], trace])
    np.testing.assert_allclose(report.correlations, total / 24, rtol=1e-4, atol=1e-5)


def test_step_size_falls_linearly_to_its_end(rng):
    # One gradient step: Adam's first move is the same but for the step size of the update it belongs to.
    rollout, moves = some_rollout(rng, CONTINUOUS, M), []
    plan = plan_of(updates=5, passes=1, minibatch=M, learning_rate=1e-2, learning_rate_end=2e-3)
    control = Control(plan.learner.initial_phi(jax.random.key(1)), ZERO)
    step = jax.jit(functools.partial(update, plan))
    for index in range(5):
        student = start(plan, jax.random.key(0))
        student = eqx.tree_at(lambda it: it.updates, student, jnp.int32(index))
        after, _ = step(student, rollout, jnp.ones(2), control, minibatches(plan.lifetime, jax.random.key(2)))
        before, now = (jax.flatten_util.ravel_pytree(it.trained.policy)[0] for it in (student, after))
        moves.append(float(jnp.abs(now - before).max()))
    np.testing.assert_allclose(moves, [1e-2, 8e-3, 6e-3, 4e-3, 2e-3], rtol=1e-3)
    steady = plan_of(updates=5, passes=1, minibatch=M, learning_rate=1e-2)
    first = one_update(replace(plan, lifetime=replace(plan.lifetime, learning_rate_end=1e-2)), rollout)[1]
    for a, b in zip(*(jax.tree.leaves(it.trained) for it in (first, one_update(steady, rollout)[1])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_kl_is_the_closed_form_between_before_and_after(rng):
    # Steps so large that the two directions of the KL differ.
    plan, rollout = plan_of(learning_rate=0.2), some_rollout(rng, CONTINUOUS, M)
    student, after, report, _ = one_update(plan, rollout)

    def forward(policy):
        hidden = np.tanh(np.asarray(rollout.observation, np.float64) @ policy.mlp.weights[0] + policy.mlp.biases[0])
        return hidden @ policy.mlp.weights[1] + policy.mlp.biases[1], np.exp(np.asarray(policy.log_std, np.float64))

    (m0, s0), (m1, s1) = forward(student.trained.policy), forward(after.trained.policy)

    def kl(m0, s0, m1, s1):
        return (np.log(s1 / s0) + (s0**2 + (m0 - m1) ** 2) / (2 * s1**2) - 0.5).sum(1).mean()

    np.testing.assert_allclose(report.kl, kl(m0, s0, m1, s1), rtol=1e-3)
    assert abs(kl(m1, s1, m0, s0) / kl(m0, s0, m1, s1) - 1) > 0.02


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_update_counts_what_is_not_finite(rng, where):
    rollout = some_rollout(rng, CONTINUOUS, M)
    bad = eqx.tree_at(lambda it: getattr(it, where), rollout, getattr(rollout, where).at[3].set(jnp.inf))
    assert int(one_update(plan_of(), bad)[1].nonfinite) == 1
    assert int(one_update(plan_of(), rollout)[1].nonfinite) == 0


@pytest.mark.parametrize(("minibatch", "passes"), [(16, 1), (16, 3), (8, 1), (4, 2)])
def test_every_row_is_used_once_per_pass(minibatch, passes):
    lifetime = LifetimeSettings(steps_per_update=16, minibatch=minibatch, passes=passes)
    batches = np.asarray(minibatches(lifetime, jax.random.key(0)))
    assert batches.shape == (passes * 16 // minibatch, minibatch)
    for one in batches.reshape(passes, 16):
        np.testing.assert_array_equal(np.sort(one), np.arange(16))
    if minibatch < 16:
        other = np.asarray(minibatches(lifetime, jax.random.key(1)))
        assert not np.array_equal(batches, other)
        assert not np.array_equal(batches.ravel()[:16], np.arange(16))


# --- shards -------------------------------------------------------------------------------------------------------


@functools.cache
def shard():
    """Compile lifetimes of point-goal in short episodes under the learned loss; return it with a first phi."""
    family = replace(POINT_GOAL, horizon=M // 2)
    learner = Learned(SETTINGS.loss, SETTINGS.policy, family.spaces)
    run = batch_of_lifetimes(make_plan(SETTINGS, learner, family), family, 0, Split.TRAIN)
    return run, learner.initial_phi(jax.random.key(0))


def whole(outcome: Outcome, row: int) -> list[np.ndarray]:
    """Return every number of one lifetime."""
    return [np.asarray(leaf[row]) for leaf in jax.tree.leaves(outcome)]


def test_a_lifetime_that_is_not_finite_leaves_its_neighbours_alone():
    run, phi = shard()
    tasks, sound = jnp.array([0, 1, 2], jnp.int32), jnp.tile(phi, (3, 1))
    good, bad = run(sound, tasks, EPOCH, ZERO), run(sound.at[1].set(jnp.nan), tasks, EPOCH, ZERO)
    assert np.isfinite(good.final_return).all()
    assert np.isnan(bad.final_return).tolist() == [False, True, False]
    np.testing.assert_array_equal(bad.nonfinite > 0, [False, True, False])
    for row in (0, 2):
        for a, b in zip(whole(good, row), whole(bad, row), strict=True):
            np.testing.assert_array_equal(a, b)


def test_place_and_size_of_a_batch_change_nothing():
    run, phi = shard()
    phis = phi + 0.05 * jax.random.normal(jax.random.key(3), (3, phi.size))
    tasks = jnp.array([0, 1, 2], jnp.int32)
    full, part = run(phis, tasks, EPOCH, ZERO), run(phis[jnp.array([2, 0])], tasks[jnp.array([2, 0])], EPOCH, ZERO)
    for here, there in ((0, 2), (1, 0)):
        for a, b in zip(whole(part, here), whole(full, there), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_common_random_numbers():
    run, phi = shard()
    phis = jnp.stack([phi, -phi, phi])
    same = run(phis, jnp.zeros(3, jnp.int32), EPOCH, ZERO)
    for a, b in zip(whole(same, 0), whole(same, 2), strict=True):
        np.testing.assert_array_equal(a, b)
    # Two episodes end before the first gradient step: same task, policy, resets and noise, whatever the loss.
    early = np.asarray(same.episode_return[:, 0])
    assert np.isfinite(early[0]).sum() == 2
    np.testing.assert_array_equal(early[0], early[1])
    assert not np.array_equal(same.episode_return[0, -1], same.episode_return[1, -1], equal_nan=True)
    other_task = run(phis, jnp.arange(3, dtype=jnp.int32), EPOCH, ZERO)
    other_epoch = run(phis, jnp.zeros(3, jnp.int32), EPOCH + 1, ZERO)
    np.testing.assert_array_equal(other_task.final_return[0], same.final_return[0])
    assert len({float(it.final_return[2]) for it in (same, other_task, other_epoch)}) == 3


@pytest.mark.parametrize(("split", "balanced"), [(Split.TRAIN, 4), (Split.HELD_OUT, 0)])
def test_tasks_are_the_keys_own_or_stand_evenly_on_the_orbit(split, balanced):
    # The reward tells the task: final_return / horizon is the goal's x.
    family = replace(
        POINT_GOAL, horizon=4, step=lambda s, a, t: (POINT_GOAL.step(s, a, t)[0], t.goal[0], jnp.array(False))
    )
    settings = replace(SETTINGS, lifetime=replace(SETTINGS.lifetime, updates=1, scoring_episodes=1))
    plan = make_plan(settings, hand_made("reinforce", settings, family.spaces), family)
    run = batch_of_lifetimes(plan, family, 0, split, balanced)
    x = np.asarray(run(jnp.zeros((5, 0)), jnp.array([0, 1, 2, 3, 0], jnp.int32), EPOCH, ZERO).final_return) / 4
    own = [family.sample(stream_key(lifetime_key(0, split, 0, index), Stream.TASK)).goal for index in range(4)]
    angle = np.arctan2(*np.asarray(own[0])[::-1]) + np.pi / 2 * np.arange(4)
    expected = np.linalg.norm(own[0]) * np.cos(angle) if balanced else [goal[0] for goal in own]
    np.testing.assert_allclose(x[:4], expected, atol=1e-5)
    assert x[0] == x[4]
    if balanced:
        np.testing.assert_allclose(x[:4].sum(), 0.0, atol=1e-5)


def test_fitness_is_the_chosen_objective():
    nan = np.nan
    returns = jnp.array([[[1.0, nan], [2.0, 4.0], [nan, 9.0]], [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]])  # [2, 3, 2]
    outcome = Outcome(jnp.array([7.0, nan]), returns, None, None, jnp.array([0, 1]), None, None, None, None)
    for objective, expected in (("final", 7.0), ("lifetime", 16.0 / 4), ("last", 15.0 / 3)):
        evolution = EvolutionSettings(objective=objective, objective_updates=2)
        np.testing.assert_allclose(fitness_of(outcome, evolution), [expected, nan])


def test_nothing_is_compiled_after_the_first_epoch(caplog):
    settings = replace(
        SETTINGS,
        lifetime=replace(SETTINGS.lifetime, updates=2),
        guidance=GuidanceSettings(learner="ppo", epochs=3),
        evolution=replace(SETTINGS.evolution, step_size_end=0.01, step_size_epochs=3),
    )
    evolution, evaluate, compiled = Evolution(settings), build(to_dict(settings)), []
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for epoch in range(4):  # alpha 1, 2/3, 1/3, 0
            caplog.clear()
            population = evolution.ask()
            results = [evaluate(request) for request in evolution.requests(population)]
            told = evolution.tell(population, results, 1.0)
            assert (told.epoch, told.nonfinite) == (epoch, 0)
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
