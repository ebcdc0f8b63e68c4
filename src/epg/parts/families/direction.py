"""Tasks that differ in which way is rewarded, forwards or backwards: nothing but the reward tells."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.words.keys import Key


class Direction(NamedTuple):
    """A task of the directional families."""

    sign: Array  # +1: forwards is rewarded, -1: backwards


FORWARDS = Direction(jnp.float32(1.0))


def sample(key: Key) -> Direction:
    """Draw a direction, each with probability 1/2."""
    return Direction(jnp.where(jax.random.bernoulli(key), 1.0, -1.0))


def turn(task: Direction, share: Array) -> Direction:
    """Turn round in the second half of the orbit."""
    return Direction(task.sign * jnp.where(share < 0.5, 1.0, -1.0))


def place(task: Direction) -> Array:
    """Return where on the orbit a task stands: forwards at its beginning."""
    return jnp.where(task.sign > 0, 0.0, 0.5)
