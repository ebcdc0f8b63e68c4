"""A loss in anyone's loop: `act`, `observe`, and a policy that learns (Algorithm 2, one lifetime)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.errors import require, require_seed
from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.core.runtime import jit
from epg.core.types import MetaParams, Rollout
from epg.evaluation.fitting import constants_of, loss_learner, obs_stats_of
from epg.evaluation.transfer import with_updates
from epg.families.gym_factory import episode_seed, flat_spaces
from epg.lifetime.env_step import Actor, actor_of
from epg.lifetime.update import InnerConfig, begin, minibatches, update
from epg.policies.base import distribution
from epg.policies.distributions import draw_noise
from epg.policies.mlp import MlpPolicy
from epg.policies.trained import TrainedPolicy, describe, env_spaces
from epg.simulators.gym import SEED_HALF, to_env_action, to_vector
from epg.storage.loss_artefact import LossArtefact
from epg.zoo import load_loss


@dataclass(frozen=True)
class UpdateRecord:
    """What a learner reports of an update."""

    update: int
    """Its number, from 1."""
    env_steps: int
    """Steps observed so far."""
    reward_mean: float
    """Mean reward of the steps since the last update."""
    kl: float
    """Mean KL between the policies before and after it."""


class Learner:
    """A fresh policy that a loss trains while you step the environment.

    It is the lifetime of `epg.learn` on held-out task number `task` of `seed`: same policy, same random numbers. The
    policy changes after every M observed steps, until the loss has made `updates` updates (by default as many as in
    its evolution); then `done` is true and the policy only acts. `on_update` is called after every update.
    """

    def __init__(
        self,
        loss: str | Path | LossArtefact,
        observation_space: Any,
        action_space: Any,
        seed: int = 0,
        *,
        task: int = 0,
        updates: int | None = None,
        task_features: Any = (),
        on_update: Callable[[UpdateRecord], None] | None = None,
    ) -> None:
        require_seed(seed)
        artefact = loss if isinstance(loss, LossArtefact) else load_loss(loss)
        self.observation_space, self.action_space = observation_space, action_space
        spaces = flat_spaces("the learner", observation_space, action_space, len(task_features))
        settings, learner = loss_learner(artefact, spaces, "these spaces")
        self._settings, stats = with_updates(settings, updates), obs_stats_of(artefact)
        self._policy, constants = MlpPolicy(settings.policy, spaces), constants_of(artefact.manifest["family"])
        self._config = InnerConfig(
            learner, self._policy, self._settings.lifetime, spaces, settings.loss.window, stats, constants
        )
        self._meta = MetaParams(jnp.asarray(artefact.phi), jnp.zeros(()), jnp.asarray(artefact.policy_init))
        self._features = jnp.asarray(task_features, jnp.float32)
        self._key = lifetime_key(seed, Split.HELD_OUT, 0, task)
        self._state = begin(self._config, self._key, self._meta.policy_init)
        self._act, self._update = jit(self._emit), jit(partial(update, self._config))
        self._rows: list[tuple[Any, ...]] = []
        self._on_update = on_update
        self._block = 0  # of M steps
        self._reset_key = self._stream(Stream.RESET)
        self._prepare()

    @property
    def updates(self) -> int:
        """Updates made."""
        return int(self._state.updates)

    @property
    def done(self) -> bool:
        """Whether the lifetime is over: the policy does not change any more."""
        return self.updates >= self._config.lifetime.updates

    @property
    def policy(self) -> TrainedPolicy:
        """The policy as it is now, to act with or to save."""
        mean, std = np.asarray(self._actor.mean), np.asarray(self._actor.std)
        about = describe(self._policy, self._settings, "evolved loss", None)
        about |= {"env": env_spaces(self.observation_space, self.action_space)}
        return TrainedPolicy(self._policy, self._actor.params, mean, std, about)

    @property
    def reset_seed(self) -> int:
        """A seed for the environment's next `reset`, so that a whole lifetime follows from the learner's own seed."""
        high, low = np.asarray(episode_seed(self._reset_key), np.int64)
        return int(high * SEED_HALF + low)

    def act(self, observation: Any) -> Any:
        """Return an action of the environment's space, sampled from the policy."""
        self._emitted = np.asarray(self._act(self._actor, self._seen(observation), self._noise[len(self._rows)]))
        self._action = to_env_action(self.action_space, self._emitted)
        return self._action

    def observe(
        self, observation: Any, action: Any, reward: float, terminated: bool, truncated: bool, next_observation: Any
    ) -> bool:
        """Remember a step, and learn if it is the M-th since the last update; return whether the policy changed.

        `action` must be what `act` returned last: the loss sees it as the policy emitted it, before any clipping.
        """
        known = hasattr(self, "_action") and np.array_equal(action, self._action)
        require(known, "observe needs the action that act returned last.")
        require(bool(np.isfinite(reward)), f"a reward must be a finite number, not {reward}.")
        step = (self._seen(observation), self._emitted, np.float32(reward), bool(terminated))
        self._rows.append((*step, bool(truncated) and not terminated, self._seen(next_observation)))
        steps = self._config.lifetime.steps_per_update
        if terminated or truncated:
            self._reset_key = jax.random.split(self._stream(Stream.RESET, 1), steps)[len(self._rows) - 1]
        if len(self._rows) < steps:
            return False
        learning = not self.done
        if learning:
            rollout = Rollout(*(jnp.asarray(np.stack(column)) for column in zip(*self._rows, strict=True)))
            batches = minibatches(self._config.lifetime, self._stream(Stream.SHUFFLE))
            self._state, stats = self._update(self._state, rollout, self._features, self._meta, batches)
        self._block += 1
        reward = float(np.mean([row[2] for row in self._rows]))
        self._prepare()
        if learning and self._on_update is not None:
            self._on_update(UpdateRecord(self.updates, self._block * steps, reward, float(stats.kl)))
        return learning

    def _prepare(self) -> None:
        """Get ready for the next M steps."""
        self._rows.clear()
        self._actor = actor_of(self._state.params.policy, self._state.normalizer.observation)
        noise = draw_noise(self._stream(Stream.ACTION), self._config.spaces, self._config.lifetime.steps_per_update)
        self._noise = np.asarray(noise)

    def _stream(self, stream: Stream, ahead: int = 0) -> Any:
        return jax.random.fold_in(stream_key(self._key, stream), self._block + ahead)

    def _seen(self, observation: Any) -> np.ndarray:
        return to_vector(self.observation_space, observation)

    def _emit(self, actor: Actor, observation: Any, noise: Any) -> Any:
        normalized = (observation - actor.mean) / actor.std
        return distribution(self._policy, actor.params, normalized).sample(noise)
