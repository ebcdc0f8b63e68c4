"""The modulated head: statistics of the window multiply what the head sees.

    c = tanh(R q + b)        q [Q]: statistics of the window, c [K]: mixes of them
    the head also sees c_k and c_k * s_i, for every mix and every component of the observation

In the paper's head the context only adds to what a row gives, so an adaptive behaviour is a second-order change that an
evolution strategy hardly sees. Products make it first-order. R is random and stays fixed; what evolves is how the head
uses the mixes. q does not depend on the policy, so the mixes are constant within an update.

    reward         mean of reward x observation and of reward x action trace: correlations, if all are normalized
    transitions    covariance of action and change of observation; sizes of changes; means and sizes of observations
    task-features  what the family reveals about the task
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.core.types import Experience, Window
from epg.loss.inputs import reward_products
from epg.settings import LossSettings

GAIN = 1.5  # of the mixes: larger ones are closer to switches
STD_FLOOR = 1e-3


class StatisticsScale(NamedTuple):
    """Mean and standard deviation of the statistics over a family's tasks; identity for reward and task features."""

    mean: np.ndarray  # [Q]
    std: np.ndarray  # [Q]


def statistics_size(settings: LossSettings, spaces: Spaces) -> int:
    """Return Q, the number of statistics."""
    sizes = {
        "none": 0,
        "reward": spaces.observation + spaces.action,
        "transitions": spaces.observation * (spaces.action + 3),
        "task-features": spaces.features,
    }
    return sizes[settings.modulation]


def window_statistics(settings: LossSettings, experience: Experience) -> Array:
    """Return the statistics q of the window's valid rows, [Q]."""
    window = experience.window
    if settings.modulation == "reward":
        rows = jnp.maximum(jnp.sum(window.valid), 1.0)
        return jnp.sum(reward_products(experience) * window.valid[:, None], axis=0) / rows
    return experience.task_features if settings.modulation == "task-features" else transition_statistics(window)


def transition_statistics(window: Window) -> Array:
    """Return statistics of a normalized window that tell how the body reacts to actions, [O (A + 3)]."""
    rows = jnp.maximum(jnp.sum(window.valid), 1.0)
    # Changes from one row to the next, where both belong to one episode.
    same = (window.valid[:-1] * (1.0 - window.done[:-1]))[:, None]
    steps = jnp.maximum(jnp.sum(same), 1.0)
    change, action = (window.observation[1:] - window.observation[:-1]) * same, window.action[:-1] * same
    centre = jnp.outer(jnp.sum(action, axis=0), jnp.sum(change, axis=0)) / steps**2
    covariance = action.T @ change / steps - centre
    size_of_change = jnp.sqrt(jnp.sum(change**2, axis=0) / steps + 1e-6)
    mean = jnp.sum(window.observation, axis=0) / rows
    size = jnp.sqrt(jnp.sum(window.observation**2, axis=0) / rows + 1e-6)
    return jnp.concatenate([covariance.ravel(), size_of_change, mean, size])


def mix(weights: Array, bias: Array, settings: LossSettings, experience: Experience) -> Array:
    """Return the mixes c = tanh(R q + b), [K]; [0] without modulation."""
    if settings.modulation == "none":
        return jnp.zeros(0)
    return jnp.tanh(weights @ window_statistics(settings, experience) + bias)


def init_mixes(key: Key, settings: LossSettings, spaces: Spaces, scale: StatisticsScale | None) -> tuple[Array, Array]:
    """Draw R [K, Q] and b [K], such that standardized statistics are mixed; [0, 0] and [0] without modulation.

    Correlations with the reward are small as they are and keep their size; the other statistics are many, of size one.
    """
    size = statistics_size(settings, spaces)
    mixes = settings.mixes if size else 0
    weights = GAIN * jax.random.normal(key, (mixes, size))
    if settings.modulation != "reward":
        weights = weights / max(1, size) ** 0.5
    if scale is None or not mixes:
        return weights, jnp.zeros(mixes)
    weights = weights / jnp.asarray(scale.std)
    return weights, -weights @ jnp.asarray(scale.mean)


def statistics_scale(statistics: np.ndarray) -> StatisticsScale:
    """Return mean and std of statistics [S, Q] over lifetimes; those with a non-finite number are left out."""
    finite = statistics[np.isfinite(statistics).all(axis=1)].astype(np.float64)
    mean, std = finite.mean(axis=0), np.maximum(finite.std(axis=0), STD_FLOOR)
    return StatisticsScale(mean.astype(np.float32), std.astype(np.float32))
