"""Running mean and deviation of observations, actions and rewards, one set per lifetime."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

DEVIATION_FLOOR = 0.1


class Moments(eqx.Module):
    """Running statistics of one quantity (Chan et al.'s parallel update)."""

    count: Array  # rows seen
    mean: Array  # [...]
    square: Array  # [...] sum of squared deviations from the mean


def init_moments(shape: tuple[int, ...]) -> Moments:
    """Start with nothing seen: mean 0 and deviation 1 until the first update."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def add(moments: Moments, rows: Array) -> Moments:
    """Add rows [M, ...]."""
    count = moments.count + rows.shape[0]
    mean_rows = jnp.mean(rows, axis=0)
    shift = mean_rows - moments.mean
    mean = moments.mean + shift * (rows.shape[0] / count)
    between = shift**2 * (moments.count * rows.shape[0] / count)
    return Moments(count, mean, moments.square + jnp.sum((rows - mean_rows) ** 2, axis=0) + between)


def deviation(moments: Moments) -> Array:
    """Return the standard deviation, floored; 1 before anything was seen."""
    variance = moments.square / jnp.maximum(moments.count, 1.0)
    floored = jnp.maximum(jnp.sqrt(variance), DEVIATION_FLOOR)
    return jnp.where(moments.count > 0, floored, 1.0)


def root_mean_square(moments: Moments) -> Array:
    """Return the root mean square, floored like the deviation; 1 before anything was seen."""
    mean_square = moments.mean**2 + moments.square / jnp.maximum(moments.count, 1.0)
    return jnp.where(moments.count > 0, jnp.maximum(jnp.sqrt(mean_square), DEVIATION_FLOOR), 1.0)


def normalise(moments: Moments, x: Array) -> Array:
    """Return (x - mean) / deviation."""
    return (x - moments.mean) / deviation(moments)


class Normaliser(eqx.Module):
    """The statistics of one lifetime."""

    observation: Moments
    action: Moments  # identity for discrete policies: a one-hot row is its own scale
    reward: Moments


def init_normaliser(observation: int, action: int, usual: Moments | None = None) -> Normaliser:
    """Start a lifetime's statistics; those of observations with what is `usual`, if that is known."""
    first = init_moments((observation,)) if usual is None else usual
    return Normaliser(first, init_moments((action,)), init_moments(()))


def known_moments(mean: Sequence[float], deviation: Sequence[float]) -> Moments:
    """Return statistics with this mean and deviation."""
    return Moments(jnp.ones(()), jnp.asarray(mean, jnp.float32), jnp.square(jnp.asarray(deviation, jnp.float32)))


def pool(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation (floored) over many lifetimes' statistics [S, ...] of as many rows each."""
    count, mean, square = (np.asarray(leaf, np.float64) for leaf in (moments.count, moments.mean, moments.square))
    middle = mean.mean(axis=0)
    variance = (square / count[:, None]).mean(axis=0) + ((mean - middle) ** 2).mean(axis=0)
    return middle, np.maximum(np.sqrt(variance), DEVIATION_FLOOR)
