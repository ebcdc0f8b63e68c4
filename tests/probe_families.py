"""Probe families with analytic answers: each can fail for one reason only (after rejax).

Tasks are empty: there is nothing to randomise in a probe.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.base import JaxFamily

TARGET = 0.5  # the best action of the probes that have one


def _nothing(key: Key) -> Array:
    return jnp.zeros(0)


def _sign(key: Key, task: Any) -> Array:
    return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)


def _zero(key: Key, task: Any) -> Array:
    return jnp.zeros(())


def _see(state: Array, task: Any) -> Array:
    return state[None]


def _probe(
    name: str,
    reset: Callable[[Key, Any], Array],
    reward: Callable[[Array, Array], Array],
    discrete: bool = False,
    horizon: int = 1,
) -> JaxFamily:
    def step(state: Array, action: Array, task: Any) -> tuple[Array, Array, Array]:
        return state + 1.0, reward(state, action), state + 1.0 >= horizon if horizon > 1 else jnp.array(True)

    spaces = Spaces(observation=1, action=2 if discrete else 1, discrete=discrete)
    return JaxFamily(
        name=name,
        version=1,
        summary="probe",
        spaces=spaces,
        horizon=horizon,
        sample=_nothing,
        reset=reset,
        observe=_see,
        step=step,
    )


VALUE = _probe("probe-value", _zero, lambda s, a: jnp.ones(()))
"""One step, reward 1: the value is 1, or the value loss is wrong."""
OBSERVATION = _probe("probe-observation", _sign, lambda s, a: s)
"""One step, reward = observation = ±1: the value is the observation, or it does not reach the value network."""
DISCOUNT = _probe("probe-discount", _zero, lambda s, a: s, horizon=2)
"""Two steps, reward at the second: the first value is gamma, or bootstrapping is wrong."""
ACTION = _probe("probe-action", _zero, lambda s, a: -((a[0] - TARGET) ** 2))
"""One step, best action 1/2: or the advantage does not reach the policy."""
BOTH = _probe("probe-both", _sign, lambda s, a: -((a[0] - TARGET * s) ** 2))
"""One step, best action ±1/2 by observation: or observations and actions are paired wrongly."""
CHOICE = _probe("probe-choice", _zero, lambda s, a: jnp.where(a == 1, 1.0, 0.0), discrete=True)
"""One step, the best choice is 1: the categorical counterpart of ACTION."""

PROBES = (VALUE, OBSERVATION, DISCOUNT, ACTION, BOTH, CHOICE)
