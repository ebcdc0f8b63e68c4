"""The modulated head: statistics of the window multiply what the head sees.

    c = tanh(R q + b)        q [Q]: statistics of the window, c [K]: mixes of them
    the head also sees c_k and c_k * s_i, for every mix and every component of the observation

In the paper's head the context only adds to what a row gives, so an adaptive behaviour is a second-order change that an
evolution strategy hardly sees. Products make it first-order. R stays fixed; what evolves is how the head uses the
mixes. q does not depend on the policy, so the mixes are constant within an update.

    reward         mean of reward x observation and of reward x action trace: correlations, if all are normalized
    lasting-reward the same statistics
    transitions    covariance of action and change of observation; sizes of changes; means and sizes of observations
    task-features  what the family reveals about the task

R is random; with lasting-reward it is measured before evolution, with lifetimes of an initial loss: the directions of q
that differ most between lifetimes and stay the same within one (`lasting_directions`). What is hidden in a task, and
shows, is such a direction. No label of a task enters, nor a choice of ours.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.errors import require
from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.core.types import Experience, Window
from epg.settings import LossSettings

GAIN = 1.5  # of the mixes: larger ones are closer to switches
STD_FLOOR = 1e-3
RIDGE = 0.1  # added to the variance of each standardized statistic, since lifetimes are few


class StatisticsScale(NamedTuple):
    """Mean and standard deviation of the statistics over a family's tasks; identity for reward and task features."""

    mean: np.ndarray  # [Q]
    std: np.ndarray  # [Q]
    directions: np.ndarray | None = None  # [Q, Q] mixes of standardized statistics instead of random ones


def statistics_size(settings: LossSettings, spaces: Spaces) -> int:
    """Return Q, the number of statistics."""
    sizes = {
        "none": 0,
        "reward": spaces.observation + spaces.action,
        "lasting-reward": spaces.observation + spaces.action,
        "transitions": spaces.observation * (spaces.action + 3),
        "task-features": spaces.features,
    }
    return sizes[settings.modulation]


def window_statistics(settings: LossSettings, experience: Experience) -> Array:
    """Return the statistics q of the window's valid rows, [Q]."""
    if settings.modulation == "task-features":
        return experience.task_features
    if settings.modulation == "transitions":
        return transition_statistics(experience.window)
    return reward_statistics(experience.window, experience.action_trace)


def reward_statistics(window: Window, action_trace: Array) -> Array:
    """Return the means of reward x observation and of reward x action trace over a normalized window, [O + A]."""
    seen = jnp.concatenate([window.observation, action_trace], axis=1)
    rows = jnp.maximum(jnp.sum(window.valid), 1.0)
    return jnp.sum(window.reward[:, None] * seen * window.valid[:, None], axis=0) / rows


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
    if settings.modulation == "lasting-reward":
        require(mixes <= size, f"loss.mixes must be at most {size} here, the number of statistics, not {mixes}.")
    if scale is not None and scale.directions is not None:
        weights = jnp.asarray(scale.directions[:mixes] / scale.std)
        return weights, -weights @ jnp.asarray(scale.mean)
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


def lasting_directions(first: np.ndarray, second: np.ndarray) -> StatisticsScale:
    """Return the directions of statistics that differ between lifetimes and are the same in both halves of each.

    `first` and `second` are the statistics of the two halves, [S, Q]. With standardized statistics, C the covariance
    of one half with the other and V that of a half with itself, direction v maximizes v' C v / v' (V + ridge) v. Mixes
    have standard deviation 1 over the lifetimes. Those with a number that is not finite are left out.
    """
    finite = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    halves = np.stack([first[finite], second[finite]]).astype(np.float64)  # [2, S, Q]
    mean = halves.mean(axis=(0, 1))
    std = np.maximum(np.sqrt(halves.var(axis=1).mean(axis=0)), STD_FLOOR)
    one, other = (halves - mean) / std
    between = (one.T @ other + other.T @ one) / (2 * len(one))
    total = (one.T @ one + other.T @ other) / (2 * len(one)) + RIDGE * np.eye(len(mean))
    whiten = np.linalg.inv(np.linalg.cholesky(total))
    _, vectors = np.linalg.eigh(whiten @ between @ whiten.T)  # the largest eigenvalue last
    directions = vectors.T[::-1] @ whiten
    spread = ((one + other) / 2 @ directions.T).std(axis=0)
    directions /= np.maximum(spread, STD_FLOOR)[:, None]
    return StatisticsScale(*(it.astype(np.float32) for it in (mean, std, directions)))
