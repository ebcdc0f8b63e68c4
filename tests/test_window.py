"""The window: order, eviction, padding, and the normalised view."""

import jax.numpy as jnp
import numpy as np
import pytest
from samples import CONTINUOUS, DISCRETE, some_rollout
from samples import jitted_learn as learn_statistics
from samples import jitted_push as push
from samples import jitted_view as view

from epg.lifetime.normalizer import init_normaliser
from epg.lifetime.window import action_trace, empty_window

pytestmark = pytest.mark.usefixtures("strict_dtypes")

PROGRESS = jnp.array([0.5, 1.0])
FEATURES = jnp.array([3.0, 4.0])


def test_newest_rows_are_last_and_the_oldest_are_forgotten(rng):
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
    np.testing.assert_array_equal(window.end, np.asarray(rollout.terminated) | np.asarray(rollout.truncated))
    assert 0 < window.end.sum() < 16
    seen = view(window, rollout, init_normaliser(3, 2), FEATURES, PROGRESS)
    np.testing.assert_array_equal(seen.terminated, rollout.terminated)  # GAE must still tell them apart
    np.testing.assert_array_equal(seen.truncated, rollout.truncated)


def test_choices_are_one_hot_and_keep_their_scale(rng):
    rollout = some_rollout(rng, DISCRETE, 8)
    stats = learn_statistics(init_normaliser(3, 4), rollout, DISCRETE)
    window = push(empty_window(8, DISCRETE), rollout, DISCRETE)
    seen = view(window, rollout, stats, FEATURES, PROGRESS)
    np.testing.assert_array_equal(seen.window.action, np.eye(4)[np.asarray(rollout.action)])
    np.testing.assert_array_equal(seen.action, rollout.action)


def test_view_normalises_valid_rows_and_leaves_padding_zero(rng):
    first, second = some_rollout(rng, CONTINUOUS, 6), some_rollout(rng, CONTINUOUS, 6)
    stats = learn_statistics(init_normaliser(3, 2), first, CONTINUOUS)
    window = push(push(empty_window(20, CONTINUOUS), first, CONTINUOUS), second, CONTINUOUS)
    seen = view(window, second, stats, FEATURES, PROGRESS)
    for name in ("observation", "action", "reward"):
        known, rows = np.asarray(getattr(first, name)), np.asarray(getattr(window, name))
        expected = (rows - known.mean(0)) / np.maximum(known.std(0), 0.1)
        assert np.abs(expected[:8]).min() > 0  # padding would not be zero, were it normalised
        np.testing.assert_array_equal(getattr(seen.window, name)[:8], 0.0)
        np.testing.assert_allclose(getattr(seen.window, name)[8:], expected[8:], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen.observation, seen.window.observation[-6:])
    mean, std = np.mean(first.observation, 0), np.std(first.observation, 0)
    np.testing.assert_allclose(seen.next_observation, (second.next_observation - mean) / std, rtol=1e-4, atol=1e-5)
    rms = np.sqrt(np.mean(np.square(first.reward)))
    np.testing.assert_allclose(seen.reward, np.asarray(second.reward) / rms, rtol=1e-5)  # scaled, not centred
    np.testing.assert_array_equal(seen.action, second.action)
    np.testing.assert_array_equal(seen.features, FEATURES)
    np.testing.assert_array_equal(seen.progress, PROGRESS)


@pytest.mark.parametrize("rows", [9, 40])
def test_trace_fades_over_the_episodes_own_actions(rng, rows):
    action, end = rng.normal(size=(rows, 2)), rng.random(rows) < 0.08
    end[3] = True
    expected = np.zeros((rows, 2))
    for t in range(rows):
        for lag in range(min(16, t + 1)):
            if lag and end[t - lag]:
                break  # that action and all before it belong to earlier episodes
            expected[t] += 0.9**lag * action[t - lag]
    ours = action_trace(jnp.asarray(action, jnp.float32), jnp.asarray(end, jnp.float32))
    np.testing.assert_allclose(ours, expected * np.sqrt(1 - 0.9**2), rtol=1e-4, atol=1e-5)


def test_view_traces_actions_in_their_own_size(rng):
    first, second = some_rollout(rng, CONTINUOUS, 6), some_rollout(rng, CONTINUOUS, 6)
    stats = learn_statistics(init_normaliser(3, 2), first, CONTINUOUS)
    window = push(push(empty_window(20, CONTINUOUS), first, CONTINUOUS), second, CONTINUOUS)
    seen = view(window, second, stats, FEATURES, PROGRESS)
    scaled = window.action / jnp.sqrt(jnp.mean(first.action**2, axis=0))  # not centred
    np.testing.assert_allclose(seen.trace, action_trace(scaled, window.end), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen.trace[:8], 0.0)
