"""Action distributions: Gaussian with a log-std vector, or categorical."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces

LOG_TWO_PI = 1.8378770664093453


class Gaussian(eqx.Module):
    """Independent normal distributions over the action's components."""

    mean: Array  # [..., A]
    log_std: Array  # [A]

    def sample(self, noise: Array) -> Array:
        """Turn standard normal noise of the mean's shape into an action."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        """Return the most likely action."""
        return self.mean

    def log_prob(self, action: Array) -> Array:
        """Return the log density of `action`."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2 + 2.0 * self.log_std + LOG_TWO_PI, axis=-1)

    def entropy(self) -> Array:
        """Return the differential entropy at each observation."""
        one = jnp.sum(self.log_std + 0.5 * (1.0 + LOG_TWO_PI))
        return jnp.broadcast_to(one, self.mean.shape[:-1])

    def kl(self, other: "Gaussian") -> Array:
        """Return KL(self || other)."""
        ratio = jnp.exp(2.0 * (self.log_std - other.log_std))
        shift = ((self.mean - other.mean) * jnp.exp(-other.log_std)) ** 2
        return 0.5 * jnp.sum(ratio + shift - 1.0 - 2.0 * (self.log_std - other.log_std), axis=-1)

    def loss_input(self) -> Array:
        """Return the part of the output that a loss sees per row and that depends on the observation: the mean."""
        return self.mean


class Categorical(eqx.Module):
    """A distribution over discrete actions."""

    logits: Array  # [..., A]

    def sample(self, noise: Array) -> Array:
        """Turn standard Gumbel noise of the logits' shape into an action."""
        return jnp.argmax(self.logits + noise, axis=-1)

    def mode(self) -> Array:
        """Return the most likely action."""
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """Return the log probability of `action`."""
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.sum(log_p * jax.nn.one_hot(action, log_p.shape[-1]), axis=-1)

    def entropy(self) -> Array:
        """Return the entropy at each observation."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    def kl(self, other: "Categorical") -> Array:
        """Return KL(self || other)."""
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

    def loss_input(self) -> Array:
        """Return what a loss sees of the policy per row: the probabilities."""
        return jax.nn.softmax(self.logits)


Distribution = Gaussian | Categorical


def kl_divergence(old: Distribution, new: Distribution) -> Array:
    """Return KL(old || new) at each observation; both come from the same kind of policy."""
    return old.kl(new)  # type: ignore[arg-type]


def draw_noise(key: Key, spaces: Spaces, steps: int) -> Array:
    """Draw the noise that `steps` calls of `sample` need, all at once."""
    draw = jax.random.gumbel if spaces.discrete else jax.random.normal
    return draw(key, (steps, spaces.action))
