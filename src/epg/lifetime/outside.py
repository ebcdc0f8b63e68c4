"""A loss for policies of other frameworks: the window in, dL/d(policy outputs) out, all in NumPy.

window = loss.window(seed)                  the last N transitions and their statistics
window.add(...)                             true when M new ones are there: time for an update
for rows in window.minibatches():
    outputs = PolicyOutputs(policy(window.observations), log_std, memory)
    gradient = loss.gradient(window, outputs, rows)      backpropagate it through the policy, take a step
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.errors import require
from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.core.runtime import jit
from epg.core.types import Experience, InnerParams, MetaParams, Rollout
from epg.learners.learned import LearnedLoss
from epg.lifetime.normalizer import Constants, FixedStats, init_normalizer, normalize
from epg.lifetime.update import minibatches, step_scale
from epg.lifetime.window import build_experience, empty_window, push, update_stats
from epg.loss.network import evaluate
from epg.policies.distributions import Categorical, Gaussian
from epg.settings import LifetimeSettings


class PolicyOutputs(NamedTuple):
    """What a loss sees of the policy, or the gradient of the loss in it."""

    mean: Any  # [N, A] mean action at each of `window.observations`; logits of discrete actions
    log_std: Any  # [A]; [0] of discrete actions
    memory: Any  # [memory] trained by gradient descent like the policy; starts as `window.initial_memory`


class LossWindow:
    """The last N transitions of a policy, normalized as the loss expects them."""

    def __init__(
        self,
        learner: LearnedLoss,
        lifetime: LifetimeSettings,
        obs_stats: FixedStats | None,
        constants: Constants = (),
        seed: int = 0,
    ) -> None:
        self._learner, self._lifetime, self._fixed, self._constants = learner, lifetime, obs_stats, constants
        spaces = learner.spaces
        self._stats = init_normalizer(spaces.observation, spaces.action, obs_stats, constants)
        self._window, self.updates = empty_window(learner.loss.window, spaces), 0
        self._rows: list[tuple[Any, ...]] = []
        self._key = lifetime_key(seed, Split.HELD_OUT, 0, 0)
        self.experience: Experience | None = None
        self._close = jit(self._build)

    @property
    def initial_memory(self) -> np.ndarray:
        """A fresh memory, [memory]."""
        return np.asarray(self._learner.init(stream_key(self._key, Stream.LEARNER)))

    @property
    def observations(self) -> np.ndarray:
        """The normalized observations of this update's window, [N, O]: where the policy is asked."""
        require(self.experience is not None, "the window is empty: add transitions until add returns true.")
        assert self.experience is not None
        return np.asarray(self.experience.window.observation)

    @property
    def learning_rate(self) -> float:
        """Adam's step size for this update, as the loss was evolved with."""
        scale = step_scale(self._lifetime, jnp.float32(self.updates - 1))
        return self._lifetime.learning_rate * (1.0 if scale is None else float(scale))

    @property
    def done(self) -> bool:
        """Whether the lifetime is over: as many updates were made as in evolution."""
        return self.updates >= self._lifetime.updates

    def normalize(self, observation: Any) -> np.ndarray:
        """Normalize an observation [..., O], for acting."""
        return np.asarray(normalize(self._stats.observation, jnp.asarray(observation, jnp.float32)))

    def minibatches(self) -> np.ndarray:
        """Return the row numbers of each gradient step of this update, [steps, rows]."""
        shuffle = jax.random.fold_in(stream_key(self._key, Stream.SHUFFLE), self.updates - 1)
        return np.asarray(minibatches(self._lifetime, shuffle))

    def add(
        self, observation: Any, action: Any, reward: float, terminated: bool, truncated: bool, task_features: Any = ()
    ) -> bool:
        """Add a transition, its action as the policy emitted it; return whether it is time for an update."""
        kind = np.int32 if self._learner.spaces.discrete else np.float32
        seen = np.asarray(observation, np.float32).ravel()
        ends = bool(terminated), bool(truncated) and not terminated
        self._rows.append((seen, np.asarray(action, kind), np.float32(reward), *ends, seen))
        if len(self._rows) < self._lifetime.steps_per_update:
            return False
        rollout = Rollout(*(jnp.asarray(np.stack(column)) for column in zip(*self._rows, strict=True)))
        features = jnp.asarray(task_features, jnp.float32)
        self._window, self.experience, self._stats = self._close(self._window, self._stats, rollout, features)
        self._rows.clear()
        self.updates += 1
        return True

    def _build(self, window: Any, stats: Any, rollout: Rollout, features: Array) -> tuple[Any, ...]:
        """Return the window with the new transitions, what the loss sees of it, and the statistics from now on."""
        spaces, fixed = self._learner.spaces, self._fixed is not None
        window = push(window, rollout, spaces)
        experience = build_experience(window, rollout, stats, features)
        return window, experience, update_stats(stats, rollout, spaces, fixed, self._constants)


class OutsideLoss:
    """The gradient of a loss in the outputs of somebody's policy."""

    def __init__(self, learner: LearnedLoss, phi: np.ndarray) -> None:
        self._learner, self._meta = learner, MetaParams(jnp.asarray(phi), jnp.zeros(()), jnp.zeros(0))
        self._gradient = jit(self._compute)

    def gradient(self, window: LossWindow, outputs: PolicyOutputs, rows: Any) -> PolicyOutputs:
        """Return dL/d(outputs) of the mean of L_i over the minibatch `rows`, in NumPy."""
        require(window.experience is not None, "the window is empty: add transitions until add returns true.")
        given = PolicyOutputs(*(np.asarray(it, np.float32) for it in outputs))
        shape = (self._learner.loss.window, self._learner.spaces.action)
        require(given.mean.shape == shape, f"the policy's mean must have the shape {shape}, not {given.mean.shape}.")
        return PolicyOutputs(*map(np.asarray, self._gradient(given, window.experience, jnp.asarray(rows))))

    def _compute(self, outputs: PolicyOutputs, experience: Experience, rows: Array) -> PolicyOutputs:
        learner = self._learner
        loss, cached = learner.unravel(self._meta.phi), learner.prepare(None, experience, self._meta)
        rows = learner.rows_of(experience, rows)

        def total(it: PolicyOutputs) -> Array:
            size = len(cached.head_sums)
            asked = it.mean if learner.loss.temporal == "policy" else it.mean[-size:][rows]  # see evaluate
            emitted = Categorical(asked) if learner.spaces.discrete else Gaussian(asked, it.log_std)
            return evaluate(loss, learner.loss, cached, lambda _: emitted, InnerParams(it, it.memory), experience, rows)

        return jax.grad(total)(outputs)
