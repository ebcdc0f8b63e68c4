"""A pole to balance with two choices, with the dynamics of Gymnasium's CartPole-v1 at the nominal task."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.base import JaxFamily

INTERVAL = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = 12 * 2 * jnp.pi / 360


class CartPoleTask(NamedTuple):
    """A cart, a pole and a push."""

    gravity: Array
    cart_mass: Array
    pole_mass: Array
    half_length: Array
    force: Array


NOMINAL = CartPoleTask(*(jnp.float32(value) for value in (9.8, 1.0, 0.1, 0.5, 10.0)))


def _sample(key: Key) -> CartPoleTask:
    # Every quantity: its nominal value times a factor log-uniform in [0.5, 2].
    factors = 2.0 ** jax.random.uniform(key, (5,), minval=-1.0, maxval=1.0)
    return CartPoleTask(*(nominal * factor for nominal, factor in zip(NOMINAL, factors, strict=True)))


def _reset(key: Key, task: CartPoleTask) -> Array:
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def _observe(state: Array, task: CartPoleTask) -> Array:
    return state


def _step(state: Array, action: Array, task: CartPoleTask) -> tuple[Array, Array, Array]:
    _, velocity, angle, rate = state
    force = jnp.where(action == 1, task.force, -task.force)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    total = task.cart_mass + task.pole_mass
    moment = task.pole_mass * task.half_length
    push = (force + moment * rate**2 * sin) / total
    turn = (task.gravity * sin - cos * push) / (task.half_length * (4.0 / 3.0 - task.pole_mass * cos**2 / total))
    acceleration = push - moment * turn * cos / total
    change = jnp.stack([velocity, acceleration, rate, turn])
    state = state + INTERVAL * change
    fallen = (jnp.abs(state[0]) > MAX_POSITION) | (jnp.abs(state[2]) > MAX_ANGLE)
    return state, jnp.ones(()), fallen


RANDOM_CART_POLE = JaxFamily(
    name="random-cart-pole",
    version=1,
    summary="balance with two choices, random masses, length, gravity and force; ends early; no reward",
    spaces=Spaces(observation=4, action=2, discrete=True, features=5),
    horizon=200,
    sample=_sample,
    reset=_reset,
    observe=_observe,
    step=_step,
    features=lambda task: jnp.log2(jnp.stack(task) / jnp.stack(NOMINAL)),
    specification="""Gymnasium's CartPole-v1 with a random cart, pole and push, cut after 200 steps.

Observation (4): position, velocity, angle, angular rate. Action: 0 pushes left, 1 right. Reward: 1 each step;
not an input of the loss. Episodes: from U(-0.05, 0.05) in every component; terminated when |position| > 2.4 or
|angle| > 12 degrees. Task: gravity 9.8, cart mass 1, pole mass 0.1, half length 0.5, force 10, each times a
factor log-uniform in [0.5, 2]. Task features (5): log2 of the factors.
""",
)
