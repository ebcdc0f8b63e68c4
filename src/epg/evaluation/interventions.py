"""What the loss card changes about a loss or its family, to see what the loss relies on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.rng import Key
from epg.core.types import Experience, InnerParams, MetaParams
from epg.families.base import Family, JaxFamily
from epg.families.mujoco.base import MujocoFamily
from epg.learners.base import InnerState, Learner
from epg.learners.learned import LearnedLoss
from epg.loss.inputs import constant_columns, head_columns, width_of
from epg.loss.modulation import mix

LARGEST_MIX = 1 - 1e-6  # where arctanh is still finite


def hide_history(learner: LearnedLoss, phi: np.ndarray) -> np.ndarray:
    """Return phi with the head's weights on context, memory and mixes set to zero."""
    loss, settings, spaces = learner.unravel(jnp.asarray(phi)), learner.loss, learner.spaces
    head, columns = loss.head, head_columns(settings, spaces)
    memory, width = constant_columns(settings, spaces)["memory"], width_of(columns)
    head = head.at[len(head) - settings.context_size :].set(0.0)
    head = head.at[width + memory.start : width + memory.stop].set(0.0)
    for name in ("mixes x observation", "mixes"):
        if name in columns:
            head = head.at[columns[name]].set(0.0)
    return np.asarray(ravel_pytree(eqx.tree_at(lambda it: it.head, loss, head))[0])


def fix_mixes(learner: LearnedLoss, phi: Array, mixes: Array) -> Array:
    """Return phi whose mixes are these numbers, whatever the window shows."""
    loss, bias = learner.unravel(phi), jnp.arctanh(jnp.clip(mixes, -LARGEST_MIX, LARGEST_MIX))
    fixed = eqx.tree_at(lambda it: (it.mixes, it.mix_bias), loss, (jnp.zeros_like(loss.mixes), bias))
    return ravel_pytree(fixed)[0]


@dataclass(frozen=True)
class ShownMixes(LearnedLoss):
    """The learned loss, which also records the mixes that it sees in every update."""

    def measure(self, params: InnerParams, experience: Experience, meta: MetaParams) -> Array:
        """Return the mixes, [K]."""
        loss = self.unravel(meta.phi)
        return mix(loss.mixes, loss.mix_bias, self.loss, experience)


@dataclass(frozen=True)
class FlippedReward(Learner):
    """A learner whose reward changes its sign after some updates; transitions from before keep theirs.

    Beside what the learner trains it carries the number of updates made, which no gradient moves.
    """

    learner: Learner
    after: int
    """Updates before the change."""

    def init(self, key: Key) -> tuple[Any, Array]:
        """Draw what the learner trains; no update was made."""
        return self.learner.init(key), jnp.zeros(())

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> Any:
        """Prepare the learner, with the reward that it is shown."""
        return self.learner.prepare(self._own(params), self.shown(params, experience), meta)

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Any, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the learner's gradient, with the reward that it is shown."""
        slope = self.learner.gradient(self._own(params), self.shown(params, experience), prepared, batch, meta)
        return InnerParams(slope.policy, (slope.learner, jnp.zeros(())))

    def update(self, state: InnerState, *args: Any, **kwargs: Any) -> InnerState:
        """Make an update, and count it."""
        made = super().update(state, *args, **kwargs)
        own, count = made.params.learner
        return InnerState(InnerParams(made.params.policy, (own, count + 1.0)), made.optimizer)

    def shown(self, params: InnerParams, experience: Experience) -> Experience:
        """Return the experience with the opposite reward on every transition since the change."""
        newest, rows = experience.reward.shape[0], experience.window.reward.shape[0]
        since = (params.learner[1] + 1 - self.after) * newest  # transitions since the change, in this update
        opposite = jnp.where(jnp.arange(rows) >= rows - since, -1.0, 1.0)
        window = replace(experience.window, reward=experience.window.reward * opposite)
        return replace(experience, window=window, reward=experience.reward * opposite[-newest:])

    @staticmethod
    def _own(params: InnerParams) -> InnerParams:
        return InnerParams(params.policy, params.learner[0])


def flip_actuators(family: Family) -> Family | None:
    """Return the family whose actuators do the opposite of an action; None if it cannot be changed so."""
    if family.spaces.discrete:
        return None
    if isinstance(family, MujocoFamily):
        ctrl = family.action_to_ctrl
        return replace(family, action_to_ctrl=lambda state, action, task: ctrl(state, -action, task))
    if isinstance(family, JaxFamily):
        step = family.step
        return replace(family, step=lambda state, action, task: step(state, -action, task))
    return None


def negate_reward(family: Family) -> Family | None:
    """Return the family with the sign of its reward changed; None if it cannot be changed so."""
    if isinstance(family, MujocoFamily):
        reward_and_done = family.reward_and_done

        def negated(state: Any, action: Array, task: Any) -> tuple[Array, Array]:
            reward, done = reward_and_done(state, action, task)
            return -reward, done

        return replace(family, reward_and_done=negated)
    if isinstance(family, JaxFamily):
        step = family.step

        def stepped(state: Any, action: Array, task: Any) -> tuple[Any, Array, Array]:
            after, reward, terminated = step(state, action, task)
            return after, -reward, terminated

        return replace(family, step=stepped)
    return None
