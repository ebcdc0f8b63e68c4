"""Tasks that differ in the rewarded direction, forwards or backwards: only the reward reveals it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.families.appearance import Appearance, CameraPose, Marks
from epg.families.symmetry import flip_sign


class Direction(NamedTuple):
    """A task of the directional families."""

    sign: Array  # +1: forwards is rewarded, -1: backwards


FORWARDS = Direction(jnp.float32(1.0))


def sample(key: Key) -> Direction:
    """Draw a direction, each with probability 1/2."""
    return Direction(jnp.where(jax.random.bernoulli(key), 1.0, -1.0))


def orbit(task: Direction, share: Array) -> Direction:
    """Change the direction in the second half of the orbit."""
    return Direction(flip_sign(task.sign, share))


def appearance(camera: CameraPose) -> Appearance:
    """Show the rewarded direction as an arrow."""
    return Appearance(
        camera,
        marks=lambda task: Marks(direction=np.array([float(task.sign), 0.0])),
        label=lambda task: "forwards" if task.sign > 0 else "backwards",
    )
