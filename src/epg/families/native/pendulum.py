"""A pendulum to swing up, with the dynamics of Gymnasium's Pendulum-v1 at the nominal task."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.base import JaxFamily

INTERVAL = 0.05
MAX_SPEED = 8.0
MAX_TORQUE = 2.0


class PendulumTask(NamedTuple):
    """A rod."""

    mass: Array
    length: Array
    gravity: Array


class PendulumState(NamedTuple):
    """Angle from upright, and its rate."""

    angle: Array
    rate: Array


NOMINAL = PendulumTask(jnp.float32(1.0), jnp.float32(1.0), jnp.float32(10.0))


def _sample(key: Key) -> PendulumTask:
    # Mass, length and gravity: each its nominal value times U(0.75, 1.25).
    scale = jax.random.uniform(key, (3,), minval=0.75, maxval=1.25)
    return PendulumTask(scale[0], scale[1], 10.0 * scale[2])


def _reset(key: Key, task: PendulumTask) -> PendulumState:
    high = jnp.array([jnp.pi, 1.0])
    angle, rate = jax.random.uniform(key, (2,), minval=-high, maxval=high)
    return PendulumState(angle, rate)


def _observe(state: PendulumState, task: PendulumTask) -> Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.rate])


def _step(state: PendulumState, action: Array, task: PendulumTask) -> tuple[PendulumState, Array, Array]:
    torque = jnp.clip(action[0] * MAX_TORQUE, -MAX_TORQUE, MAX_TORQUE)
    upright = jnp.mod(state.angle + jnp.pi, 2 * jnp.pi) - jnp.pi
    cost = upright**2 + 0.1 * state.rate**2 + 0.001 * torque**2
    pull = 1.5 * task.gravity / task.length * jnp.sin(state.angle)
    push = 3.0 / (task.mass * task.length**2) * torque
    rate = jnp.clip(state.rate + (pull + push) * INTERVAL, -MAX_SPEED, MAX_SPEED)
    return PendulumState(state.angle + rate * INTERVAL, rate), -cost, jnp.array(False)


RANDOM_PENDULUM = JaxFamily(
    name="random-pendulum",
    version=1,
    summary="swing-up with random mass, length and gravity; no reward",
    spaces=Spaces(observation=3, action=1, features=3),
    horizon=200,
    sample=_sample,
    reset=_reset,
    observe=_observe,
    step=_step,
    features=lambda task: jnp.stack([task.mass, task.length, task.gravity / 10.0]),
    specification="""Gymnasium's Pendulum-v1 with a random rod.

Observation (3): cos and sin of the angle from upright, angular rate. Action (1): torque / 2, clipped to [-1, 1].
Reward: -(angle^2 + 0.1 rate^2 + 0.001 torque^2), each step; not an input of the loss. Episodes: 200 steps
from angle U(-pi, pi) and rate U(-1, 1), never terminated. Task: mass and length U(0.75, 1.25), gravity
U(7.5, 12.5). Task features (3): mass, length, gravity / 10.
""",
)
