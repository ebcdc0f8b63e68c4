"""MAML (Finn, Abbeel and Levine 2017): an initial policy from which one policy-gradient step is enough for a task.

inner step : theta' = theta - step size * grad of -mean(advantage * log pi), on a batch of one task
outer step : PPO's clipped surrogate of theta' on fresh data of the task, averaged over tasks, with gradients through
             the inner step (second order); Adam on theta

Advantages are discounted returns to go less a linear baseline fitted to the same batch, standardized (the code of the
MAML paper). A return is cut at the end of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from epg.baselines.training import GradientTraining, TrainingStep, mean_return
from epg.core.rng import Key, Split, Stream, run_key, stream_key
from epg.core.runtime import jit
from epg.core.types import Experience, InnerParams, MetaParams, Rollout
from epg.evolution.task_sampling import task_sampler
from epg.learners import gae
from epg.learners.base import InnerState, Learner
from epg.learners.ppo import ppo_loss
from epg.learners.reinforce import reinforce_loss
from epg.lifetime.env_step import actor_of
from epg.lifetime.normalizer import FixedStats, Moments, add, init_moments, normalize, std
from epg.lifetime.sampling import Trajectories, trajectory_sampler
from epg.policies.base import Params, Policy, distribution
from epg.policies.mlp import MlpPolicy
from epg.settings import MamlSettings, PPOSettings, Settings

RIDGE = 1e-4  # of the linear baseline, on features of size 1
BALANCE = 2  # consecutive tasks that are one task moved over the family's orbit: both directions in every outer step


class Batch(NamedTuple):
    """The data of one update on one task, N rows."""

    observation: Array  # [N, O] normalized
    action: Array  # [N, A], or [N] integers
    advantage: Array  # [N]


class TaskData(NamedTuple):
    """The data of one task in an outer step."""

    inner: tuple[Batch, ...]  # of each inner update
    outer: Batch  # of the adapted policy
    acting: Params  # the adapted policy that acted for it


class MamlState(NamedTuple):
    """What an outer step changes."""

    params: Params  # theta, the initial policy
    optimizer: Any  # state of the outer Adam
    observation: Moments  # statistics of all observations so far


@dataclass(frozen=True)
class MamlStep(TrainingStep):
    """What is recorded of one outer step; its fitness is the mean return after the inner updates."""

    initial_mean: float
    """Mean return of the initial policy."""


def advantages(observation: Array, reward: Array, done: Array, discount: float) -> Array:
    """Return standardized advantages [R, T] of R rows of consecutive steps of one task."""
    returns = jax.vmap(gae.returns_to_go, (0, 0, None))(reward, done, discount)
    index = jnp.arange(reward.shape[1])
    begun = jnp.where(jnp.roll(done, 1, axis=1), index, 0)  # wraps into the first column, which begins at 0 anyway
    age = ((index - jax.lax.cummax(begun, axis=1)) / 100.0)[..., None]
    seen = jnp.clip(observation, -10.0, 10.0)
    features = jnp.concatenate([seen, seen**2, age, age**2, age**3, jnp.ones_like(age)], axis=-1)
    rows = features.reshape(-1, features.shape[-1])
    rows = rows / (jnp.sqrt(jnp.mean(rows**2, axis=0)) + 1e-8)
    gram = rows.T @ rows / len(rows) + RIDGE * jnp.eye(rows.shape[1])
    weights = jnp.linalg.solve(gram, rows.T @ returns.ravel() / len(rows))
    return gae.standardize(returns - (rows @ weights).reshape(returns.shape))


def batch_of(rollout: Rollout, stats: Moments, discount: float) -> Batch:
    """Turn the transitions of one task [R, T, ...] into a batch of R * T rows."""
    observation = normalize(stats, rollout.observation)
    advantage = advantages(observation, rollout.reward, rollout.terminated | rollout.truncated, discount)
    return Batch(*(it.reshape(-1, *it.shape[2:]) for it in (observation, rollout.action, advantage)))


@dataclass(frozen=True)
class Maml(Learner):
    """The inner update as a learner: at test time MAML is a lifetime that starts from the initial policy."""

    settings: MamlSettings
    ppo: PPOSettings
    policy: Policy

    def init(self, key: Key) -> None:
        """Train nothing beside the policy."""

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> Batch:
        """Return the newest transitions with their advantages."""
        done = experience.terminated | experience.truncated
        rows = experience.observation[None], experience.reward[None], done[None]
        return Batch(experience.observation, experience.action, advantages(*rows, self.ppo.discount)[0])

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Batch, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the policy gradient on the rows `batch`."""
        rows = jax.tree.map(lambda it: it[batch], prepared)
        return InnerParams(self.policy_gradient(params.policy, rows), params.learner)

    def update(
        self,
        state: InnerState,
        experience: Experience,
        meta: MetaParams,
        minibatches: Array,
        optimizer: optax.GradientTransformation,
        step_scale: Array | None,
    ) -> InnerState:
        """Take one step of plain gradient descent on all rows, as in training."""
        policy = self.step(state.params.policy, self.prepare(state.params, experience, meta))
        return InnerState(InnerParams(policy, state.params.learner), state.optimizer)

    def policy_gradient(self, params: Params, batch: Batch) -> Params:
        """Return the gradient of -mean(advantage * log pi)."""

        def loss(it: Params) -> Array:
            new = distribution(self.policy, it, batch.observation)
            return reinforce_loss(new, batch.action, batch.advantage, self.ppo)

        return jax.grad(loss)(params)

    def step(self, params: Params, batch: Batch) -> Params:
        """Take one inner step."""
        gradient = self.policy_gradient(params, batch)
        if self.settings.first_order:
            gradient = jax.lax.stop_gradient(gradient)
        return jax.tree.map(lambda it, slope: it - self.settings.inner_step_size * slope, params, gradient)

    def outer_loss(self, params: Params, data: TaskData) -> Array:
        """Return PPO's loss of the policy that the inner steps make of `params`, on one task."""
        for batch in data.inner:
            params = self.step(params, batch)
        new, old = (distribution(self.policy, it, data.outer.observation) for it in (params, data.acting))
        return ppo_loss(new, old, data.outer.action, data.outer.advantage, self.ppo)

    def outer_gradient(self, params: Params, data: TaskData) -> Params:
        """Return the mean gradient of the outer loss over tasks, leaves of `data` [tasks, ...]."""
        slopes = jax.lax.map(lambda task: jax.grad(self.outer_loss)(params, task), data)
        return jax.tree.map(lambda it: jnp.mean(it, axis=0), slopes)


def split_batch(steps: int, horizon: int) -> tuple[int, int]:
    """Divide a batch of steps into as many parallel rows as leave each a whole episode: rows, steps per row."""
    rows = max((it for it in range(1, steps + 1) if steps % it == 0 and steps // it >= horizon), default=1)
    return rows, steps // rows


class MamlTraining(GradientTraining):
    """Meta-training of the initial policy."""

    kind, noun, method = "maml", "a MAML training", "MAML on training tasks"

    def __init__(self, settings: Settings, maml: MamlSettings) -> None:
        super().__init__(settings, maml)
        spaces = self.family.spaces
        self.maml, self.net = maml, MlpPolicy(maml.policy, spaces)
        self.learner = Maml(maml, settings.ppo, self.net)
        self.batch_steps = maml.batch_steps
        self.rows, steps = split_batch(self.batch_steps, self.family.horizon)
        self.optimizer = optax.adam(maml.outer_step_size)
        self.sample = trajectory_sampler(self.net, self.family, steps)
        self.tasks = jit(jax.vmap(task_sampler(self.family, settings.seed, Split.TRAIN, BALANCE), (0, None)))
        self.programs = Programs(self)
        params = self.net.init(run_key(settings.seed, Stream.POLICY))
        self.state = MamlState(params, self.optimizer.init(params), init_moments((spaces.observation,)))

    def work(self) -> tuple[MamlState, MamlStep]:
        """Take one outer step: sample, adapt, sample again, ascend."""
        state, number = self.state, self.maml.tasks
        tasks, keys = self.tasks(jnp.arange(number, dtype=jnp.int32), jnp.int32(self.step))
        params = jax.tree.map(lambda it: jnp.broadcast_to(it, (number, *it.shape)), state.params)
        batches, seen = [], []
        for update in range(self.maml.inner_updates + 1):
            taken = self._act(params, tasks, keys, update)
            batches.append(self.programs.batches(taken.rollout, state.observation))
            seen.append(taken)
            if update < self.maml.inner_updates:
                params = self.programs.adapt(params, batches[-1])
        data = TaskData(tuple(batches[:-1]), batches[-1], params)
        moved, optimizer = self.programs.ascend(state.params, state.optimizer, data)
        observation = state.observation
        for taken in seen:
            observation = self.programs.observe(observation, taken.rollout.observation)
        return MamlState(moved, optimizer, observation), self._record(seen)

    def _act(self, params: Params, tasks: Any, keys: Key, update: int) -> Trajectories:
        """Let the policy of each task act for a batch of steps."""
        row_keys, row_tasks, actors = self.programs.rows(params, self.state.observation, tasks, keys, update)
        return self.sample(row_keys, row_tasks, actors)

    def _record(self, seen: list[Trajectories]) -> MamlStep:
        initial, final = (mean_return(np.asarray(it.episode_return)) for it in (seen[0], seen[-1]))
        diverged = sum(int(np.asarray(it.diverged).sum()) for it in seen)
        return MamlStep(self.step, final, diverged, len(seen) * self.maml.tasks * self.batch_steps, initial)

    def trained(self) -> tuple[MlpPolicy, Params, FixedStats]:
        """Return the initial policy, with the observation statistics of all training."""
        seen = self.state.observation
        return self.net, self.state.params, FixedStats(np.asarray(seen.mean), np.asarray(std(seen)))


class Programs:
    """What is compiled of an outer step."""

    def __init__(self, training: MamlTraining) -> None:
        self._training, self._learner = training, training.learner
        self.rows: Callable[..., Any] = jit(self._rows)
        self.batches: Callable[..., Any] = jit(self._batches)
        self.adapt: Callable[..., Any] = jit(
            lambda params, batch: jax.lax.map(lambda it: self._learner.step(*it), (params, batch))
        )
        self.ascend: Callable[..., Any] = jit(self._ascend)
        self.observe: Callable[..., Any] = jit(lambda stats, rows: add(stats, rows.reshape(-1, rows.shape[-1])))

    def _rows(self, params: Params, stats: Moments, tasks: Any, keys: Key, update: Array) -> tuple[Key, Any, Any]:
        """Return keys, tasks and actors of all rows [tasks * rows, ...]."""
        rows = self._training.rows
        split = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(stream_key(key, Stream.BATCH), update), rows))
        actors = jax.vmap(actor_of, (0, None))(params, stats)
        tasks, actors = jax.tree.map(lambda it: jnp.repeat(it, rows, axis=0), (tasks, actors))
        return split(keys).reshape(-1), tasks, actors

    def _batches(self, rollout: Rollout, stats: Moments) -> Batch:
        tasks, discount = self._training.maml.tasks, self._learner.ppo.discount
        grouped = jax.tree.map(lambda it: it.reshape(tasks, -1, *it.shape[1:]), rollout)
        return jax.lax.map(lambda it: batch_of(it, stats, discount), grouped)

    def _ascend(self, params: Params, optimizer: Any, data: TaskData) -> tuple[Params, Any]:
        """Take the outer gradient steps of PPO."""

        def step(carry: tuple[Params, Any], _: None) -> tuple[tuple[Params, Any], None]:
            params, optimizer = carry
            slope = self._learner.outer_gradient(params, data)
            change, optimizer = self._training.optimizer.update(slope, optimizer, params)
            return (optax.apply_updates(params, change), optimizer), None

        return jax.lax.scan(step, (params, optimizer), length=self._training.maml.outer_epochs)[0]
