"""Discounted sums: generalized advantage estimation (Schulman et al. 2016) and returns to go, for one lifetime.

Subscripts are times: r_t follows a_t, v_t is the value of s_t and v_tp1 that of the state that a_t led to, before any
reset.
"""

import jax
import jax.numpy as jnp
from jax import Array


def discounted_sums(x_t: Array, decay_t: Array) -> Array:
    """Return y_t = x_t + decay_t * y_{t+1} with y beyond the end zero, [T] -> [T]."""

    def back(y: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        x, decay = now
        y = x + decay * y
        return y, y

    return jax.lax.scan(back, jnp.zeros(()), (x_t, decay_t), reverse=True)[1]


def advantages(
    r_t: Array, v_t: Array, v_tp1: Array, terminated: Array, truncated: Array, discount: float, gae_lambda: float
) -> Array:
    """Estimate advantages by GAE; a time limit bootstraps from v_tp1, a termination does not."""
    delta_t = r_t + discount * jnp.where(terminated, 0.0, v_tp1) - v_t
    done = jnp.logical_or(terminated, truncated)
    return discounted_sums(delta_t, jnp.where(done, 0.0, discount * gae_lambda))


def returns_to_go(r_t: Array, done: Array, discount: float) -> Array:
    """Return discounted rewards to the end of each episode, cut at the end of the batch."""
    return discounted_sums(r_t, jnp.where(done, 0.0, discount))


def standardize(x: Array) -> Array:
    """Centre and scale to standard deviation 1."""
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-8)
