"""Guidance: a policy-gradient loss mixed into the learned one, weighted by alpha (Eq. 10)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.types import Experience, InnerParams, MetaParams
from epg.learners.base import Learner
from epg.learners.learned import LearnedLoss
from epg.learners.unfused import zeros_like


@dataclass(frozen=True)
class GuidedLearner(Learner):
    """(1 - alpha) L_phi + alpha L_pg. It trains what both train: memory and, for PPO, a value network."""

    learned: LearnedLoss
    guide: Learner

    def init(self, key: Key) -> tuple[Any, Any]:
        """Draw what both train, each from its own key."""
        return self.learned.init(jax.random.fold_in(key, 1)), self.guide.init(key)

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> tuple[Any, Any]:
        """Prepare both."""
        learned, guide = (InnerParams(params.policy, learner) for learner in params.learner)
        return self.learned.prepare(learned, experience, meta), self.guide.prepare(guide, experience, meta)

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Any, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the weighted sum of both gradients.

        Each limit is a branch of its own: alpha = 1 is the guide alone bit for bit, whatever phi holds, and alpha = 0
        costs nothing for it. Alpha is shared by a shard, so the branch stays a branch under vmap.
        """

        def learned(it: InnerParams) -> InnerParams:
            own = InnerParams(it.policy, it.learner[0])
            slope = self.learned.gradient(own, experience, prepared[0], batch, meta)
            return InnerParams(slope.policy, (slope.learner, zeros_like(it.learner[1])))

        def guide(it: InnerParams) -> InnerParams:
            own = InnerParams(it.policy, it.learner[1])
            slope = self.guide.gradient(own, experience, prepared[1], batch, meta)
            return InnerParams(slope.policy, (zeros_like(it.learner[0]), slope.learner))

        def both(it: InnerParams) -> InnerParams:
            weight = 1.0 - meta.alpha
            return jax.tree.map(lambda a, b: weight * a + meta.alpha * b, learned(it), guide(it))

        case = jnp.where(meta.alpha == 0.0, 0, jnp.where(meta.alpha == 1.0, 1, 2))
        return jax.lax.switch(case, (learned, guide, both), params)
