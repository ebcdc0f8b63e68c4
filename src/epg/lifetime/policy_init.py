"""How the policy of a lifetime starts: drawn fresh, from an evolved initialization, or from an earlier lifetime (pool).

`MetaParams.policy_init` says which, by its length: [0] fresh; [P] these parameters; [P + Q + 1] parameters and
statistics of an earlier lifetime if the last entry is 1, else fresh.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.lifetime.normalizer import Normalizer, init_normalizer
from epg.policies.base import Params, Policy

FRESH = jnp.zeros(0)
"""`MetaParams.policy_init` of a policy that is drawn fresh."""


def initial_policy(policy: Policy, key: Key, normalizer: Normalizer, given: Array) -> tuple[Params, Normalizer]:
    """Return the parameters and the statistics with which a lifetime starts; `normalizer` is an empty one."""
    fresh = policy.init(key)
    parameters, unravel = ravel_pytree(fresh)
    if given.size == 0:
        return fresh, normalizer
    if given.size == parameters.size:
        return unravel(given), normalizer
    both, unravel_both = ravel_pytree((fresh, normalizer))
    started: tuple[Params, Normalizer] = unravel_both(jnp.where(given[-1] > 0.0, given[:-1], both))
    return started


def flat_end(params: Params, normalizer: Normalizer) -> Array:
    """Return the parameters and the statistics with which a lifetime ended, for another to start from, [P + Q]."""
    return ravel_pytree((params, normalizer))[0]


def end_size(policy: Policy, spaces: Spaces) -> int:
    """Return P + Q."""
    normalizer = init_normalizer(spaces.observation, spaces.action)
    return jax.eval_shape(lambda: flat_end(policy.init(jax.random.key(0)), normalizer)).size
