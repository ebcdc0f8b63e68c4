"""Hand-made losses: GAE (Schulman et al. 2016), PPO (2017) and REINFORCE (Williams 1992), for one lifetime.

Subscripts are times: r_t follows a_t, v_t is the value of s_t and v_tp1 of the state that a_t led to,
before any reset.
"""

import jax
import jax.numpy as jnp
from jax import Array

from epg.parts.policy import Categorical, Gaussian
from epg.words.settings import PolicyGradientSettings


def discounted_sums(x_t: Array, decay_t: Array) -> Array:
    """Return y_t = x_t + decay_t * y_{t+1} with y beyond the end zero, [T] -> [T]."""

    def back(y: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        x, decay = now
        y = x + decay * y
        return y, y

    return jax.lax.scan(back, jnp.zeros(()), (x_t, decay_t), reverse=True)[1]


def advantages(
    r_t: Array, v_t: Array, v_tp1: Array, terminated: Array, truncated: Array, settings: PolicyGradientSettings
) -> Array:
    """Estimate advantages by GAE; a time limit bootstraps from v_tp1, a termination does not."""
    delta_t = r_t + settings.discount * jnp.where(terminated, 0.0, v_tp1) - v_t
    ended = jnp.logical_or(terminated, truncated)
    return discounted_sums(delta_t, jnp.where(ended, 0.0, settings.discount * settings.trace))


def returns_to_go(r_t: Array, ended: Array, discount: float) -> Array:
    """Return discounted rewards to the end of each trajectory, cut at the end of the batch."""
    return discounted_sums(r_t, jnp.where(ended, 0.0, discount))


def standardise(x: Array) -> Array:
    """Centre and scale to deviation 1."""
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-8)


def ppo_loss(
    new: Gaussian | Categorical,
    old: Gaussian | Categorical,
    action: Array,
    advantage: Array,
    settings: PolicyGradientSettings,
) -> Array:
    """Return the clipped surrogate with KL penalty and entropy bonus, averaged over rows."""
    ratio = jnp.exp(new.log_prob(action) - old.log_prob(action))
    clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
    penalty = settings.kl_weight * _kl(old, new)
    return jnp.mean(penalty - surrogate - settings.entropy_weight * new.entropy())


def reinforce_loss(
    new: Gaussian | Categorical, action: Array, advantage: Array, settings: PolicyGradientSettings
) -> Array:
    """Return minus Eq. 3, averaged over rows, with the entropy bonus: losses are minimised."""
    return -jnp.mean(advantage * new.log_prob(action) + settings.entropy_weight * new.entropy())


def _kl(old: Gaussian | Categorical, new: Gaussian | Categorical) -> Array:
    return old.kl(new)  # type: ignore[arg-type]  # both sides come from the same policy
