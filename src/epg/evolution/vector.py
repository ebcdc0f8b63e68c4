"""What evolution varies, in one vector: the loss parameters phi, then the policy's initial parameters.

plain: phi alone                              EPG
+I   : phi and the initial policy             EPG+I, `--evolve-init epg`
PPO+I: the initial policy alone, phi is [0]   `--evolve-init ppo`
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.errors import require
from epg.core.rng import Stream, run_key
from epg.core.spaces import Spaces
from epg.learners.learned import LearnedLoss
from epg.loss.blocks import blocks, moves
from epg.loss.modulation import StatisticsScale
from epg.policies.mlp import MlpPolicy
from epg.settings import Settings


@dataclass(frozen=True)
class EvolvedVector:
    """How the vector of an evolution is laid out, and where it starts."""

    settings: Settings
    spaces: Spaces

    @property
    def policy(self) -> MlpPolicy:
        """The policy that lifetimes train."""
        return MlpPolicy(self.settings.policy, self.spaces)

    @property
    def learned(self) -> LearnedLoss:
        """The learned loss, which has no part in the vector if PPO is the learner."""
        return LearnedLoss(self.settings.loss, self.policy, self.spaces, self.settings.lifetime.replay)

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Return the lengths of phi and of the initial policy."""
        init = jax.eval_shape(self.policy.init, jax.random.key(0)) if self.settings.evolves_init else ()
        return self.learned.dimension if self.settings.has_loss else 0, sum(leaf.size for leaf in jax.tree.leaves(init))

    def initial(self, scale: StatisticsScale | None = None) -> Array:
        """Draw the first vector; `scale` is that of the window's statistics, if the loss mixes them."""
        seed, parts = self.settings.seed, []
        if self.settings.has_loss:
            parts.append(self.learned.initial_phi(run_key(seed, Stream.LOSS), scale))
        if self.settings.evolves_init:
            parts.append(ravel_pytree(self.policy.init(run_key(seed, Stream.POLICY)))[0])
        return jnp.concatenate(parts)

    def start(self, phi: np.ndarray, policy_init: np.ndarray | None) -> Array:
        """Return the first vector of an evolution with a warm start; without an initial policy that is drawn."""
        fresh_phi, fresh_init = self.split(np.asarray(self.initial()))
        init = fresh_init if policy_init is None else policy_init
        fits = phi.shape == fresh_phi.shape and init.shape == fresh_init.shape
        require(fits, "the loss to start from has another number of parameters.")
        return jnp.concatenate([jnp.asarray(phi), jnp.asarray(init)])

    def split(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi and the initial policy of each vector, [..., D] and [..., P]."""
        phi, _ = self.sizes
        return vectors[..., :phi], vectors[..., phi:]

    @property
    def moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Return whose steps move each entry, and with which factor (0: it does not evolve): see loss/blocks.py."""
        phi, init = self.sizes
        source, factor = np.arange(phi + init), np.ones(phi + init, np.float32)
        if phi:
            source[:phi], factor[:phi] = moves(self.settings.loss, self.spaces, self.settings.evolution.evolves)
        return source, factor

    @property
    def blocks(self) -> dict[str, np.ndarray]:
        """Return the indices of each block of the vector."""
        phi, init = self.sizes
        own = {"initial policy": np.arange(phi, phi + init)} if init else {}
        return (blocks(self.settings.loss, self.spaces) if phi else {}) | own
