"""Running mean and standard deviation of observations, actions and rewards, one set per lifetime."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

STD_FLOOR = 0.1


class Moments(eqx.Module):
    """Running statistics of one quantity (Chan et al.'s parallel update)."""

    count: Array  # rows seen
    mean: Array  # [...]
    square: Array  # [...] sum of squared differences from the mean


class Normalizer(eqx.Module):
    """The statistics of one lifetime."""

    observation: Moments
    action: Moments  # identity for discrete policies: a one-hot row is its own scale
    reward: Moments


class FixedStats(eqx.Module):
    """Observation statistics of a family, measured once; a tensor of the loss artefact."""

    mean: np.ndarray  # float32 [O]
    std: np.ndarray  # float32 [O]

    def moments(self) -> Moments:
        """Return moments with this mean and standard deviation."""
        return Moments(jnp.ones(()), jnp.asarray(self.mean), jnp.square(jnp.asarray(self.std)))


def init_moments(shape: tuple[int, ...]) -> Moments:
    """Start with nothing seen: mean 0 and std 1 until the first update."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def add(moments: Moments, rows: Array) -> Moments:
    """Add rows [M, ...]."""
    count = moments.count + rows.shape[0]
    mean_rows = jnp.mean(rows, axis=0)
    shift = mean_rows - moments.mean
    mean = moments.mean + shift * (rows.shape[0] / count)
    between = shift**2 * (moments.count * rows.shape[0] / count)
    return Moments(count, mean, moments.square + jnp.sum((rows - mean_rows) ** 2, axis=0) + between)


def std(moments: Moments) -> Array:
    """Return the standard deviation, floored; 1 before anything was seen."""
    variance = moments.square / jnp.maximum(moments.count, 1.0)
    floored = jnp.maximum(jnp.sqrt(variance), STD_FLOOR)
    return jnp.where(moments.count > 0, floored, 1.0)


def root_mean_square(moments: Moments) -> Array:
    """Return the root mean square, floored like the standard deviation; 1 before anything was seen."""
    mean_square = moments.mean**2 + moments.square / jnp.maximum(moments.count, 1.0)
    return jnp.where(moments.count > 0, jnp.maximum(jnp.sqrt(mean_square), STD_FLOOR), 1.0)


def normalize(moments: Moments, x: Array) -> Array:
    """Return (x - mean) / std."""
    return (x - moments.mean) / std(moments)


Constants = tuple[tuple[int, float, float], ...]  # (index, mean, std) of observations constant within a lifetime


def hold(moments: Moments, constants: Constants) -> Moments:
    """Give the observations that are constant within a lifetime their mean and std over tasks."""
    if not constants:
        return moments
    index, mean, spread = (np.array(column) for column in zip(*constants, strict=True))
    square = jnp.square(jnp.asarray(spread, jnp.float32)) * moments.count
    return Moments(moments.count, moments.mean.at[index].set(mean), moments.square.at[index].set(square))


def init_normalizer(
    observation: int, action: int, fixed: FixedStats | None = None, constants: Constants = ()
) -> Normalizer:
    """Start a lifetime's statistics; those of observations with the fixed ones, if there are any."""
    first = hold(init_moments((observation,)), constants) if fixed is None else fixed.moments()
    return Normalizer(first, init_moments((action,)), init_moments(()))


def pool(moments: Moments) -> FixedStats:
    """Pool the statistics of many lifetimes [S, ...] of equally many rows into those of the family."""
    count, mean, square = (np.asarray(leaf, np.float64) for leaf in (moments.count, moments.mean, moments.square))
    centre = mean.mean(axis=0)
    variance = (square / count[:, None]).mean(axis=0) + ((mean - centre) ** 2).mean(axis=0)
    return FixedStats(centre.astype(np.float32), np.maximum(np.sqrt(variance), STD_FLOOR).astype(np.float32))
