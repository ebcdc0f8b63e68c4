"""The window: the last N transitions of a lifetime, and the normalized experience that learners see."""

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.spaces import Spaces
from epg.core.types import Experience, Rollout, Window
from epg.lifetime import normalizer as norm
from epg.lifetime.normalizer import Normalizer

TRACE_DECAY = 0.9
TRACE_LENGTH = 16


def empty_window(length: int, spaces: Spaces) -> Window:
    """Return a window of zero rows, none of them valid."""
    zeros = jnp.zeros(length)
    return Window(jnp.zeros((length, spaces.observation)), jnp.zeros((length, spaces.action)), zeros, zeros, zeros)


def action_rows(action: Array, spaces: Spaces) -> Array:
    """Return actions as rows [M, A]: as they are, or one-hot."""
    return jax.nn.one_hot(action, spaces.action) if spaces.discrete else action


def push(window: Window, rollout: Rollout, spaces: Spaces) -> Window:
    """Append the newest transitions and drop as many of the oldest."""
    done = jnp.logical_or(rollout.terminated, rollout.truncated).astype(jnp.float32)
    new = Window(rollout.observation, action_rows(rollout.action, spaces), rollout.reward, done, jnp.ones_like(done))
    return jax.tree.map(lambda old, rows: jnp.concatenate([old[rows.shape[0] :], rows]), window, new)


def build_experience(window: Window, rollout: Rollout, stats: Normalizer, task_features: Array) -> Experience:
    """Normalize with the statistics that were used for acting."""
    return Experience(
        window=normalize_window(window, stats),
        action_trace=normalized_trace(window, stats),
        observation=norm.normalize(stats.observation, rollout.observation),
        next_observation=norm.normalize(stats.observation, rollout.next_observation),
        action=rollout.action,
        reward=rollout.reward / norm.root_mean_square(stats.reward),
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        task_features=task_features,
    )


def normalize_window(window: Window, stats: Normalizer) -> Window:
    """Normalize a window; padding rows stay zero."""
    valid = window.valid[:, None]
    return Window(
        observation=norm.normalize(stats.observation, window.observation) * valid,
        action=norm.normalize(stats.action, window.action) * valid,
        reward=norm.normalize(stats.reward, window.reward) * window.valid,
        done=window.done,
        valid=window.valid,
    )


def normalized_trace(window: Window, stats: Normalizer) -> Array:
    """Return the action trace of a window, with actions in units of their size, [N, A]."""
    return action_trace(window.action / norm.root_mean_square(stats.action), window.done)


def action_trace(action: Array, done: Array) -> Array:
    """Return sum_k 0.9^k a_{t-k} over the newest 16 actions of the same episode, scaled to the actions' own size.

    Centred reward times this trace, averaged, is a policy gradient for the mean action: it gives credit to past
    actions. The actions are not centred: relative to a running mean, a policy that has found its direction would seem
    to turn back as soon as it slows down.
    """
    episode = jnp.cumsum(done) - done  # a row that ends an episode still belongs to it
    trace = action
    for lag in range(1, min(TRACE_LENGTH, len(action))):
        same = (episode[lag:] == episode[:-lag])[:, None]
        # Shifted by padding: adding to a slice in place would be a scatter, slow on a CPU.
        trace = trace + jnp.pad(TRACE_DECAY**lag * jnp.where(same, action[:-lag], 0.0), ((lag, 0), (0, 0)))
    return trace * (1.0 - TRACE_DECAY**2) ** 0.5


def update_stats(
    stats: Normalizer, rollout: Rollout, spaces: Spaces, fixed: bool = False, constants: norm.Constants = ()
) -> Normalizer:
    """Add the newest transitions; discrete actions, and observations with `fixed` statistics, stay as they are."""
    action = stats.action if spaces.discrete else norm.add(stats.action, rollout.action)
    added = stats.observation if fixed else norm.add(stats.observation, rollout.observation)
    observation = added if fixed else norm.hold(added, constants)
    return Normalizer(observation, action, norm.add(stats.reward, rollout.reward))
