"""PPO (Schulman et al. 2017) across tasks: what RL² and the best fixed MLP have in common.

outer step : lifetimes, each on a training task of its own; then epochs of minibatches of PPO on what was lived

The policy acts in all lifetimes with the same parameters. A training says what a row of a minibatch is (`data`), and
what its loss is (`loss`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from epg.baselines.training import GradientTraining, TrainingStep
from epg.core.rng import Key, Split, Stream, run_key
from epg.core.runtime import jit
from epg.core.types import InnerParams, Rollout
from epg.evolution.task_sampling import task_sampler
from epg.learners.ppo import VALUE_HIDDEN
from epg.lifetime.env_step import actor_of
from epg.lifetime.normalizer import FixedStats, Moments, add, init_moments, root_mean_square, std
from epg.lifetime.sampling import Trajectories, trajectory_sampler
from epg.policies.base import Params
from epg.policies.mlp import MlpPolicy, init_mlp
from epg.policies.recurrent import RecurrentPolicy
from epg.settings import Settings

BALANCE = 2  # consecutive tasks that are one task moved over the family's orbit
MAX_GRADIENT = 1.0  # norm to which outer gradients are clipped: recurrent ones have outliers


class PPOState(NamedTuple):
    """What an outer step changes."""

    params: InnerParams  # policy and value network
    optimizer: Any  # state of Adam
    observation: Moments  # statistics of all observations so far
    reward: Moments  # and of all rewards


class PPOTraining(GradientTraining):
    """A policy trained by PPO on many tasks at once."""

    def __init__(
        self, settings: Settings, options: Any, net: MlpPolicy | RecurrentPolicy, lifetimes: int, steps: int
    ) -> None:
        super().__init__(settings, options)
        spaces = self.family.spaces
        self.ppo, self.net, self.lifetimes, self.steps = settings.ppo, net, lifetimes, steps
        self.optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRADIENT), optax.adam(self.step_size()))
        self.sample = trajectory_sampler(net, self.family, steps)
        self.tasks = jit(jax.vmap(task_sampler(self.family, settings.seed, Split.TRAIN, BALANCE), (0, None)))
        self._actors, self._learn = jit(self._actors_of), jit(self._update)
        seen = spaces.observation + (net.units if isinstance(net, RecurrentPolicy) else 0)
        value = init_mlp(run_key(settings.seed, Stream.LEARNER), (seen, *VALUE_HIDDEN, 1), 0.01)
        params = InnerParams(net.init(run_key(settings.seed, Stream.POLICY)), value)
        moments = init_moments((spaces.observation,)), init_moments(())
        self.state = PPOState(params, self.optimizer.init(params), *moments)

    def step_size(self) -> float | Callable[[Array], Array]:
        """Return Adam's step size, or its schedule."""
        size: float = self.options.step_size
        return size

    def work(self) -> tuple[PPOState, TrainingStep]:
        """Take one outer step: live, then PPO on what was lived."""
        tasks, keys = self.tasks(jnp.arange(self.lifetimes, dtype=jnp.int32), jnp.int32(self.step))
        taken = self.sample(keys, tasks, self._actors(self.state))
        state = self._learn(self.state, taken.rollout, run_key(self.settings.seed, Stream.SHUFFLE, self.step))
        return state, self.record(taken)

    @abstractmethod
    def data(self, state: PPOState, rollout: Rollout) -> Any:
        """Turn lifetimes [S, T, ...] into the rows that minibatches are drawn from, leaves [rows, ...]."""

    @abstractmethod
    def loss(self, params: InnerParams, batch: Any) -> Array:
        """Return the loss of policy and value network on a minibatch of rows."""

    @abstractmethod
    def record(self, taken: Trajectories) -> TrainingStep:
        """Return what is recorded of an outer step."""

    def trained(self) -> tuple[MlpPolicy | RecurrentPolicy, Params, FixedStats]:
        """Return the policy, with the observation statistics of all training."""
        seen = self.state.observation
        return self.net, self.state.params.policy, FixedStats(np.asarray(seen.mean), np.asarray(std(seen)))

    def scaled_reward(self, state: PPOState, reward: Array) -> Array:
        """Scale rewards so that values are of order one, whatever the reward's scale and the horizon."""
        return reward / root_mean_square(state.reward) * (1.0 - self.ppo.discount)

    def _actors_of(self, state: PPOState) -> Any:
        actor = actor_of(state.params.policy, state.observation)
        return jax.tree.map(lambda it: jnp.broadcast_to(it, (self.lifetimes, *it.shape)), actor)

    def _update(self, state: PPOState, rollout: Rollout, key: Key) -> PPOState:
        """Take the gradient steps of PPO on lifetimes [S, T, ...], then add to the statistics."""
        data = self.data(state, rollout)
        rows = minibatches(key, len(jax.tree.leaves(data)[0]), self.options.update_epochs, self.options.minibatches)

        def step(carry: tuple[InnerParams, Any], rows: Array) -> tuple[tuple[InnerParams, Any], None]:
            params, optimizer = carry
            batch = jax.tree.map(lambda it: it[rows], data)
            slope = jax.grad(lambda it: self.loss(it, batch))(params)
            change, optimizer = self.optimizer.update(slope, optimizer, params)
            return (optax.apply_updates(params, change), optimizer), None

        (params, optimizer), _ = jax.lax.scan(step, (state.params, state.optimizer), rows)
        observation = add(state.observation, rollout.observation.reshape(-1, rollout.observation.shape[-1]))
        return PPOState(params, optimizer, observation, add(state.reward, rollout.reward.ravel()))


def minibatch_size(rows: int, number: int) -> int:
    """Return the rows of a minibatch if an epoch is divided into `number` of them."""
    return max(1, rows // number)


def minibatches(key: Key, rows: int, epochs: int, number: int) -> Array:
    """Return the rows of each gradient step [epochs * number, size]: every epoch shuffles them anew.

    Minibatches have one size; of rows that it does not divide, the rest of each epoch is left out.
    """
    size = minibatch_size(rows, number)
    shuffled = jax.vmap(lambda it: jax.random.permutation(it, rows))(jax.random.split(key, epochs))
    return shuffled[:, : rows // size * size].reshape(-1, size)
