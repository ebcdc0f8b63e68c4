"""Linear policies: a Gaussian whose mean is linear in the observation, and optionally in products of observations."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.policies.base import FeedForward
from epg.policies.distributions import Gaussian
from epg.policies.mlp import multiply


def observation_products(observation: Array) -> Array:
    """Return the products of all pairs of an observation's components, [..., O] -> [..., O (O + 1) / 2]."""
    first, second = jnp.triu_indices(observation.shape[-1])
    return observation[..., first] * observation[..., second]


@dataclass(frozen=True)
class LinearPolicy(FeedForward):
    """A linear policy with fixed log-std. Its parameters are [A, F + 1]: F weights and a bias per action."""

    spaces: Spaces
    log_std: float
    products: bool = False
    """Whether it also sees the products of all pairs of observations."""

    @property
    def features(self) -> int:
        """Number of inputs, F."""
        size = self.spaces.observation
        return size + size * (size + 1) // 2 if self.products else size

    def init(self, key: Key) -> Array:
        """Return the policy whose mean is zero."""
        return jnp.zeros((self.spaces.action, self.features + 1))

    def apply(self, params: Array, carry: tuple[()], observation: Array) -> tuple[Gaussian, tuple[()]]:
        """Return the action distribution at each observation."""
        if self.products:
            observation = jnp.concatenate([observation, observation_products(observation)], axis=-1)
        mean = multiply(observation, params[:, :-1].T) + params[:, -1]
        return Gaussian(mean, jnp.full(self.spaces.action, self.log_std)), carry
