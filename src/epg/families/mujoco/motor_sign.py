"""Tasks that differ in the sign of the motors: only how the body moves after an action reveals it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.families.mujoco.base import SimState, clip_to_unit
from epg.families.symmetry import flip_sign


class MotorSign(NamedTuple):
    """A task of signed-half-cheetah."""

    sign: Array  # +1: motors as in the model, -1: every action has the opposite effect


STOCK = MotorSign(jnp.float32(1.0))


def sample(key: Key) -> MotorSign:
    """Draw a sign for all motors, each with probability 1/2."""
    return MotorSign(jnp.where(jax.random.bernoulli(key), 1.0, -1.0))


def orbit(task: MotorSign, share: Array) -> MotorSign:
    """Change the sign in the second half of the orbit."""
    return MotorSign(flip_sign(task.sign, share))


def action_to_ctrl(state: SimState, action: Array, task: MotorSign) -> Array:
    """Clip every component to [-1, 1], and give it the task's sign."""
    return task.sign * clip_to_unit(state, action, task)


def label(task: MotorSign) -> str:
    """Say what a picture does not show."""
    return "motors as usual" if task.sign > 0 else "motors reversed"
