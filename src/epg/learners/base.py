"""The contract of a learner: how a policy changes, given its recent experience."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import optax
from jax import Array

from epg.core.rng import Key
from epg.core.types import Experience, InnerParams, MetaParams


class InnerState(NamedTuple):
    """What an update changes."""

    params: InnerParams
    optimizer: Any  # state of the inner Adam


class Learner(ABC):
    """One axis of variation: the learned loss, PPO, REINFORCE and their mix all share this contract.

    A learner is a gradient. `update` takes the gradient steps of one update (Eq. 6), the same way for all of them.
    """

    @abstractmethod
    def init(self, key: Key) -> Any:
        """Draw what this learner trains beside the policy."""

    @abstractmethod
    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> Any:
        """Compute what stays fixed over all gradient steps of one update."""

    @abstractmethod
    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Any, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the gradient of this learner's loss on the rows `batch` of the newest M transitions."""

    def measure(self, params: InnerParams, experience: Experience, meta: MetaParams) -> Any:
        """Return what else is recorded of every update, before it is made; nothing, except in analyses."""
        return ()

    def update(
        self,
        state: InnerState,
        experience: Experience,
        meta: MetaParams,
        minibatches: Array,
        optimizer: optax.GradientTransformation,
        step_scale: Array | None,
    ) -> InnerState:
        """Take a gradient step per minibatch [steps, rows]; `step_scale` multiplies every step (None: 1)."""
        prepared = self.prepare(state.params, experience, meta)

        def step(state: InnerState, batch: Array) -> tuple[InnerState, None]:
            gradient = self.gradient(state.params, experience, prepared, batch, meta)
            change, opt_state = optimizer.update(gradient, state.optimizer, state.params)
            if step_scale is not None:
                change = jax.tree.map(lambda it: step_scale * it, change)
            return InnerState(optax.apply_updates(state.params, change), opt_state), None

        if minibatches.shape[0] == 1:  # a loop of one would only hide the step from the compiler
            return step(state, minibatches[0])[0]
        return jax.lax.scan(step, state, minibatches)[0]
