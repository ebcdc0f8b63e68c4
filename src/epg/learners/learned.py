"""The learned loss L_phi as a learner: its gradient trains policy and memory (Eq. 6)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.rng import Key
from epg.core.runtime import jit
from epg.core.spaces import Spaces
from epg.core.types import Experience, InnerParams, MetaParams
from epg.learners.base import Learner
from epg.loss.init import init_loss, init_memory
from epg.loss.modulation import StatisticsScale
from epg.loss.network import CachedInputs, Loss, cache_inputs, evaluate
from epg.policies.base import Policy, distribution
from epg.settings import LossSettings


@lru_cache(maxsize=32)
def _initial_phi(loss: LossSettings, spaces: Spaces) -> Callable[..., Array]:
    """Return the program that draws an initial phi, compiled once."""
    return jit(lambda key, scale: ravel_pytree(init_loss(key, loss, spaces, scale))[0])


@dataclass(frozen=True)
class LearnedLoss(Learner):
    """The learned loss with its memory."""

    loss: LossSettings
    policy: Policy
    spaces: Spaces
    replay: bool = False  # whether minibatches come from the whole window

    @property
    def unravel(self) -> Callable[[Array], Loss]:
        """Return the function that turns phi into the loss network's parameters."""
        template = jax.eval_shape(lambda: init_loss(jax.random.key(0), self.loss, self.spaces))
        return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template))[1]

    @property
    def dimension(self) -> int:
        """Return D, the length of phi."""
        template = jax.eval_shape(lambda: init_loss(jax.random.key(0), self.loss, self.spaces))
        return sum(leaf.size for leaf in jax.tree.leaves(template))

    def initial_phi(self, key: Key, scale: StatisticsScale | None = None) -> Array:
        """Draw an initial phi, [D]; `scale` is that of the window's statistics, if the loss mixes them."""
        phi: Array = _initial_phi(self.loss, self.spaces)(key, scale)
        return phi

    def init(self, key: Key) -> Array:
        """Draw a fresh memory."""
        return init_memory(key, self.loss)

    def prepare(self, params: InnerParams | None, experience: Experience, meta: MetaParams) -> CachedInputs:
        """Compute the parts of the first layers that do not depend on theta.

        The barrier keeps XLA from fusing them with what follows, so that their rounding does not depend on the rest
        of the program.
        """
        cached = cache_inputs(self.unravel(meta.phi), self.loss, self.spaces, experience, self.replay)
        return jax.lax.optimization_barrier(cached)

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: CachedInputs, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the gradient of L_phi in policy and memory."""
        loss, batch = self.unravel(meta.phi), self.rows_of(experience, batch)

        def total(it: InnerParams) -> Array:
            def policy(observation: Array) -> object:
                return distribution(self.policy, it.policy, observation)

            return evaluate(loss, self.loss, prepared, policy, it, experience, batch)  # type: ignore[arg-type]

        return jax.grad(total)(params)

    def rows_of(self, experience: Experience, batch: Array) -> Array:
        """Return the rows that a minibatch names; with replay, any numbers name rows of the window."""
        if not self.replay:
            return batch
        # Counted from the newest row backwards, among those that are not padding.
        filled = jnp.sum(experience.window.valid).astype(jnp.int32)
        return self.loss.window - 1 - jnp.mod(batch, filled)
