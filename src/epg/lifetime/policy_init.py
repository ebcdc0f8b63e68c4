"""How the policy of a lifetime starts: drawn fresh, or from given parameters (an evolved or pooled initialization)."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.rng import Key
from epg.policies.base import Params, Policy

FRESH = jnp.zeros(0)
"""`MetaParams.policy_init` of a policy that is drawn fresh."""


def initial_policy(policy: Policy, key: Key, given: Array) -> Params:
    """Return fresh parameters, or the `given` flat vector [P] as parameters if it is not empty."""
    if given.shape[-1] == 0:
        return policy.init(key)
    template = jax.eval_shape(policy.init, key)
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template))[1](given)
