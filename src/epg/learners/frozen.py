"""No learning: the policy stays as it is. For policies that were trained before (fixed ones, RL²)."""

from typing import Any

from jax import Array

from epg.core.rng import Key
from epg.core.types import Experience, InnerParams, MetaParams
from epg.learners.base import InnerState, Learner
from epg.learners.unfused import zeros_like


class Frozen(Learner):
    """A learner that learns nothing."""

    def init(self, key: Key) -> None:
        """Train nothing."""

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> None:
        """Prepare nothing."""

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Any, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return zeros."""
        zeros: InnerParams = zeros_like(params)
        return zeros

    def update(self, state: InnerState, *rest: Any) -> InnerState:
        """Leave everything as it is."""
        return state
