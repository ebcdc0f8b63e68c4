"""Symmetry of a family: the orbit, along which tasks can be moved without changing their distribution.

`Family.orbit(task, share)` moves a task by a share in [0, 1) along a closed path that leaves the distribution of tasks
unchanged: all directions of a goal, both signs of a reward. Evolution spreads the shared tasks of an epoch evenly over
it, so that a loss that merely prefers one direction gains nothing. A family without an orbit is sampled independently.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from epg.families.base import Task


def flip_sign(sign: Array, share: Array) -> Array:
    """Return a sign moved along its orbit: changed in the second half."""
    return sign * jnp.where(share < 0.5, 1.0, -1.0)


def rotate(vector: Array, share: Array) -> Array:
    """Return a vector of the plane turned by a share of a full circle, [2] -> [2]."""
    cos, sin = jnp.cos(2 * jnp.pi * share), jnp.sin(2 * jnp.pi * share)
    x, y = vector
    return jnp.stack([cos * x - sin * y, sin * x + cos * y])


def wrap(value: Array, share: Array, low: float, high: float) -> Array:
    """Return a number moved along an interval whose ends are joined."""
    span = high - low
    return jnp.mod(value - low + share * span, span) + low


def balanced(sample: Callable[[], Task], orbit: Callable[[Task, Array], Task], index: Array, count: int) -> Task:
    """Return task `index` of `count` that are one drawn task, moved evenly over the orbit."""
    return orbit(sample(), index / count)
