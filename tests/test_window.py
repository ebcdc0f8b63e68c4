"""The window: order, eviction, padding, the normalized experience, and the statistics of a lifetime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import CONTINUOUS, DISCRETE, some_rollout
from samples import jitted_build_experience as build_experience
from samples import jitted_push as push
from samples import jitted_update_stats as update_stats

from epg.lifetime.normalizer import FixedStats, init_normalizer, std
from epg.lifetime.window import action_trace, empty_window

pytestmark = pytest.mark.usefixtures("strict_dtypes")

FEATURES = jnp.array([3.0, 4.0])


def test_newest_rows_are_last_and_the_oldest_are_dropped(rng):
    rollouts = [some_rollout(rng, CONTINUOUS, 4) for _ in range(4)]
    window = empty_window(10, CONTINUOUS)
    for pushed, rollout in enumerate(rollouts, 1):
        window = push(window, rollout, CONTINUOUS)
        for name in ("observation", "action", "reward"):
            rows = np.concatenate([np.asarray(getattr(it, name)) for it in rollouts[:pushed]])[-10:]
            padding = np.zeros((10 - len(rows), *rows.shape[1:]))
            np.testing.assert_array_equal(getattr(window, name), np.concatenate([padding, rows]))
        np.testing.assert_array_equal(window.valid, np.arange(10) >= 10 - min(10, 4 * pushed))


def test_termination_and_time_limit_both_end_a_trajectory(rng):
    rollout = some_rollout(rng, CONTINUOUS, 16)
    window = push(empty_window(16, CONTINUOUS), rollout, CONTINUOUS)
    np.testing.assert_array_equal(window.done, np.asarray(rollout.terminated) | np.asarray(rollout.truncated))
    assert 0 < window.done.sum() < 16
    seen = build_experience(window, rollout, init_normalizer(3, 2), FEATURES)
    np.testing.assert_array_equal(seen.terminated, rollout.terminated)  # GAE must still tell them apart
    np.testing.assert_array_equal(seen.truncated, rollout.truncated)


def test_discrete_actions_are_one_hot_and_keep_their_scale(rng):
    rollout = some_rollout(rng, DISCRETE, 8)
    stats = update_stats(init_normalizer(3, 4), rollout, DISCRETE)
    window = push(empty_window(8, DISCRETE), rollout, DISCRETE)
    seen = build_experience(window, rollout, stats, FEATURES)
    np.testing.assert_array_equal(seen.window.action, np.eye(4)[np.asarray(rollout.action)])
    np.testing.assert_array_equal(seen.action, rollout.action)


def test_experience_normalizes_valid_rows_and_leaves_padding_zero(rng):
    first, second = some_rollout(rng, CONTINUOUS, 6), some_rollout(rng, CONTINUOUS, 6)
    stats = update_stats(init_normalizer(3, 2), first, CONTINUOUS)
    window = push(push(empty_window(20, CONTINUOUS), first, CONTINUOUS), second, CONTINUOUS)
    seen = build_experience(window, second, stats, FEATURES)
    for name in ("observation", "action", "reward"):
        known, rows = np.asarray(getattr(first, name)), np.asarray(getattr(window, name))
        expected = (rows - known.mean(0)) / np.maximum(known.std(0), 0.1)
        assert np.abs(expected[:8]).min() > 0  # padding would not be zero, were it normalized
        np.testing.assert_array_equal(getattr(seen.window, name)[:8], 0.0)
        np.testing.assert_allclose(getattr(seen.window, name)[8:], expected[8:], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen.observation, seen.window.observation[-6:])
    mean, std = np.mean(first.observation, 0), np.std(first.observation, 0)
    np.testing.assert_allclose(seen.next_observation, (second.next_observation - mean) / std, rtol=1e-4, atol=1e-5)
    rms = np.sqrt(np.mean(np.square(first.reward)))
    np.testing.assert_allclose(seen.reward, np.asarray(second.reward) / rms, rtol=1e-5)  # scaled, not centred
    np.testing.assert_array_equal(seen.action, second.action)
    np.testing.assert_array_equal(seen.task_features, FEATURES)


@pytest.mark.parametrize("rows", [9, 40])
def test_trace_decays_over_the_episodes_own_actions(rng, rows):
    action, done = rng.normal(size=(rows, 2)), rng.random(rows) < 0.08
    done[3] = True
    expected = np.zeros((rows, 2))
    for t in range(rows):
        for lag in range(min(16, t + 1)):
            if lag and done[t - lag]:
                break  # that action and all before it belong to earlier episodes
            expected[t] += 0.9**lag * action[t - lag]
    ours = action_trace(jnp.asarray(action, jnp.float32), jnp.asarray(done, jnp.float32))
    np.testing.assert_allclose(ours, expected * np.sqrt(1 - 0.9**2), rtol=1e-4, atol=1e-5)


def test_experience_scales_the_actions_of_the_trace_without_centring_them(rng):
    first, second = some_rollout(rng, CONTINUOUS, 6), some_rollout(rng, CONTINUOUS, 6)
    stats = update_stats(init_normalizer(3, 2), first, CONTINUOUS)
    window = push(push(empty_window(20, CONTINUOUS), first, CONTINUOUS), second, CONTINUOUS)
    seen = build_experience(window, second, stats, FEATURES)
    scaled = window.action / jnp.sqrt(jnp.mean(first.action**2, axis=0))  # not centred
    np.testing.assert_allclose(seen.action_trace, action_trace(scaled, window.done), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen.action_trace[:8], 0.0)


def test_fixed_observation_statistics_stay_as_they_are(rng):
    fixed = FixedStats(np.float32([1.0, 2.0, 3.0]), np.float32([2.0, 0.5, 1.0]))
    stats = init_normalizer(3, 2, fixed)
    after = update_stats(stats, some_rollout(rng, CONTINUOUS, 8), CONTINUOUS, True)
    for ours, before in zip(jax.tree.leaves(after.observation), jax.tree.leaves(fixed.moments()), strict=True):
        np.testing.assert_array_equal(ours, before)
    assert after.reward.count == after.action.count == 8


def test_statistics_of_constant_observations_are_held_while_others_run(rng):
    constants = ((1, -4.0, 0.5),)  # (index, mean, std)
    stats = init_normalizer(3, 2, None, constants)
    rollouts = [some_rollout(rng, CONTINUOUS, 8) for _ in range(2)]
    for rollout in rollouts:
        stats = update_stats(stats, rollout, CONTINUOUS, False, constants)
    rows = np.concatenate([it.observation for it in rollouts])
    np.testing.assert_allclose(stats.observation.mean, [rows[:, 0].mean(), -4.0, rows[:, 2].mean()], rtol=1e-5)
    np.testing.assert_allclose(std(stats.observation), [rows[:, 0].std(), 0.5, rows[:, 2].std()], rtol=1e-4)
