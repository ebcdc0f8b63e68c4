"""REINFORCE (Williams 1992) with standardized returns to go (Eq. 3)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.types import Experience, InnerParams, MetaParams
from epg.learners import gae
from epg.learners.base import Learner
from epg.learners.unfused import unfused
from epg.policies.base import Policy, distribution
from epg.policies.distributions import Distribution
from epg.settings import PPOSettings


def reinforce_loss(new: Distribution, action: Array, advantage: Array, settings: PPOSettings) -> Array:
    """Return minus Eq. 3, averaged over rows, with the entropy bonus: losses are minimized."""
    return -jnp.mean(advantage * new.log_prob(action) + settings.entropy_weight * new.entropy())


@dataclass(frozen=True)
class Reinforce(Learner):
    """REINFORCE; trains nothing but the policy."""

    settings: PPOSettings
    policy: Policy

    def init(self, key: Key) -> None:
        """Train nothing beside the policy."""

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> Array:
        """Return standardized returns to go."""
        done = jnp.logical_or(experience.terminated, experience.truncated)
        return gae.standardize(gae.returns_to_go(experience.reward, done, self.settings.discount))

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Array, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the policy gradient (Eq. 3)."""
        observation, action = experience.observation[batch], experience.action[batch]

        def total(it: InnerParams) -> Array:
            new = distribution(self.policy, it.policy, observation)
            return reinforce_loss(new, action, prepared[batch], self.settings)

        return unfused(meta, jax.grad(total), params)
