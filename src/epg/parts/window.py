"""The window: the last N transitions of a lifetime, and the normalised view that learners get of it."""

import jax
import jax.numpy as jnp
from jax import Array

from epg.parts import normaliser as norm
from epg.parts.normaliser import Normaliser
from epg.words.records import Experience, Rollout, Window
from epg.words.settings import Spaces

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
    """Append the newest rows and forget as many of the oldest."""
    end = jnp.logical_or(rollout.terminated, rollout.truncated).astype(jnp.float32)
    new = Window(rollout.observation, action_rows(rollout.action, spaces), rollout.reward, end, jnp.ones_like(end))
    return jax.tree.map(lambda old, rows: jnp.concatenate([old[rows.shape[0] :], rows]), window, new)


def view(window: Window, rollout: Rollout, stats: Normaliser, features: Array, progress: Array) -> Experience:
    """Normalise with the statistics that acted; padding rows stay zero."""
    valid = window.valid[:, None]
    normalised = Window(
        observation=norm.normalise(stats.observation, window.observation) * valid,
        action=norm.normalise(stats.action, window.action) * valid,
        reward=norm.normalise(stats.reward, window.reward) * window.valid,
        end=window.end,
        valid=window.valid,
    )
    return Experience(
        window=normalised,
        trace=action_trace(window.action / norm.root_mean_square(stats.action), window.end),
        observation=norm.normalise(stats.observation, rollout.observation),
        next_observation=norm.normalise(stats.observation, rollout.next_observation),
        action=rollout.action,
        reward=rollout.reward / norm.root_mean_square(stats.reward),
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        features=features,
        progress=progress,
    )


def action_trace(action: Array, end: Array) -> Array:
    """Return sum_k 0.9^k a_{t-k} over the newest 16 actions of the same episode, scaled to the actions' own size.

    Centred reward times this trace, averaged, is a policy gradient for the mean action: it gives credit to past
    actions. The actions are not centred: relative to a running mean, a policy that has found its way would look
    as if it were turning back as soon as it slowed down.
    """
    earlier_ends = jnp.cumsum(end) - end  # a row that ends an episode still belongs to it
    trace = action
    for lag in range(1, min(TRACE_LENGTH, len(action))):
        same = (earlier_ends[lag:] == earlier_ends[:-lag])[:, None]
        # Shifted by padding: adding to a slice in place would be a scatter, slow on a CPU.
        trace = trace + jnp.pad(TRACE_DECAY**lag * jnp.where(same, action[:-lag], 0.0), ((lag, 0), (0, 0)))
    return trace * (1.0 - TRACE_DECAY**2) ** 0.5


def learn_statistics(stats: Normaliser, rollout: Rollout, spaces: Spaces, usual: bool = False) -> Normaliser:
    """Add the newest rows to the statistics; discrete actions, and observations whose `usual` is known, keep theirs."""
    action = stats.action if spaces.discrete else norm.add(stats.action, rollout.action)
    observation = stats.observation if usual else norm.add(stats.observation, rollout.observation)
    return Normaliser(observation, action, norm.add(stats.reward, rollout.reward))
