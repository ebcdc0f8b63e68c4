"""PPO (Schulman et al. 2017): clipped surrogate, KL penalty, entropy bonus, GAE with a value network."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.core.types import Experience, InnerParams, MetaParams, Rollout
from epg.learners import gae
from epg.learners.base import Learner
from epg.learners.unfused import unfused
from epg.policies.base import Params, Policy, distribution
from epg.policies.distributions import Distribution, kl_divergence
from epg.policies.mlp import Mlp, apply_mlp, init_mlp
from epg.settings import PPOSettings

VALUE_HIDDEN = (64, 64)  # widths of the value network
VALUE_WEIGHT = 0.5  # weight of its squared error


def ppo_loss(new: Distribution, old: Distribution, action: Array, advantage: Array, settings: PPOSettings) -> Array:
    """Return the clipped surrogate with KL penalty and entropy bonus, averaged over rows."""
    ratio = jnp.exp(new.log_prob(action) - old.log_prob(action))
    clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
    penalty = settings.kl_weight * kl_divergence(old, new)
    return jnp.mean(penalty - surrogate - settings.entropy_weight * new.entropy())


@dataclass(frozen=True)
class PPO(Learner):
    """PPO with a value network trained beside the policy."""

    settings: PPOSettings
    policy: Policy
    spaces: Spaces

    def init(self, key: Key) -> Mlp:
        """Draw a fresh value network."""
        return init_mlp(key, (self.spaces.observation, *VALUE_HIDDEN, 1), output_norm=0.01)

    def value(self, network: Mlp, observation: Array) -> Array:
        """Return the expected discounted return from each observation, in units of r_rms / (1 - gamma)."""
        return apply_mlp(network, observation, "tanh")[..., 0]

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> tuple[Params, Array, Array]:
        """Return the policy that acted, the standardized advantages and the value targets."""
        # Values of order one, whatever the reward's scale and the horizon: a fresh network fits them at once.
        reward = experience.reward * (1.0 - self.settings.discount)
        advantage, target = self.estimate(params.learner, reward, experience)
        return params.policy, gae.standardize(advantage), target

    def estimate(self, network: Mlp, reward: Array, steps: Experience | Rollout) -> tuple[Array, Array]:
        """Return advantages and value targets of consecutive steps, normalized, with their scaled rewards [M]."""
        v_t, v_tp1 = (self.value(network, it) for it in (steps.observation, steps.next_observation))
        ends, settings = (steps.terminated, steps.truncated), self.settings
        advantage = gae.advantages(reward, v_t, v_tp1, *ends, settings.discount, settings.gae_lambda)
        return advantage, v_t + advantage

    def gradient(
        self,
        params: InnerParams,
        experience: Experience,
        prepared: tuple[Params, Array, Array],
        batch: Array,
        meta: MetaParams,
    ) -> InnerParams:
        """Return the gradient of the clipped surrogate in the policy and of the squared error in the value network."""
        acting, advantage, target = prepared
        observation, action = experience.observation[batch], experience.action[batch]
        old = distribution(self.policy, acting, observation)

        def total(it: InnerParams) -> Array:
            new = distribution(self.policy, it.policy, observation)
            surrogate = ppo_loss(new, old, action, advantage[batch], self.settings)
            error = jnp.mean((self.value(it.learner, observation) - target[batch]) ** 2)
            return surrogate + VALUE_WEIGHT * error

        return unfused(meta, jax.grad(total), params)
