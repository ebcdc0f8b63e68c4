"""RL² (Duan et al. 2016): a recurrent policy trained by PPO over whole lifetimes. It learns a task within its state.

A lifetime is one trajectory: returns, advantages and the GRU's state go on across the ends of episodes, so that what
exploration earns later counts. Gradients are propagated through at most `bptt_steps` steps (truncated backpropagation
through time); a segment starts from the state that the acting policy had there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from epg.baselines.training import GradientTraining, TrainingStep, mean_return
from epg.core.rng import Key, Split, Stream, run_key
from epg.core.runtime import jit
from epg.core.types import InnerParams, Rollout
from epg.evolution.task_sampling import task_sampler
from epg.learners import gae
from epg.learners.ppo import VALUE_HIDDEN, VALUE_WEIGHT, ppo_loss
from epg.lifetime.env_step import actor_of
from epg.lifetime.normalizer import FixedStats, Moments, add, init_moments, normalize, root_mean_square, std
from epg.lifetime.sampling import trajectory_sampler
from epg.policies.base import Carry, Params
from epg.policies.distributions import Distribution
from epg.policies.mlp import apply_mlp, init_mlp
from epg.policies.recurrent import RecurrentPolicy
from epg.settings import PPOSettings, RL2Settings, Settings

BALANCE = 2  # consecutive tasks that are one task moved over the family's orbit
MAX_GRADIENT = 1.0  # norm to which outer gradients are clipped: recurrent ones have outliers


class Steps(NamedTuple):
    """Consecutive steps of one lifetime, [L, ...]."""

    observation: Array  # normalized
    action: Array  # as the policy emitted it
    reward: Array  # not normalized
    done: Array  # bool: terminated or truncated


class Segment(NamedTuple):
    """What PPO sees of consecutive steps."""

    steps: Steps
    carry: Carry  # before the first of them
    acting: Distribution  # the distributions that acted, [L, ...]
    advantage: Array  # [L] standardized
    target: Array  # [L] of the value network


class RL2State(NamedTuple):
    """What an outer step changes."""

    params: InnerParams  # policy, and a value network that sees observation and GRU state
    optimizer: Any  # state of Adam
    observation: Moments  # statistics of all observations so far
    reward: Moments  # and of all rewards


@dataclass(frozen=True)
class RL2Step(TrainingStep):
    """What is recorded of one outer step; its fitness is the mean return of the last episode of each lifetime."""

    initial_mean: float
    """Mean return of the first episode of each lifetime."""


def unroll(
    policy: RecurrentPolicy, params: InnerParams, carry: Carry, steps: Steps
) -> tuple[Carry, Distribution, Array]:
    """Return the carry after the steps, and distribution and value at each of them, by the policy's own contract."""

    def step(carry: Carry, now: Steps) -> tuple[Carry, tuple[Distribution, Array]]:
        distribution, carry = policy.apply(params.policy, carry, now.observation)
        value = apply_mlp(params.learner, jnp.concatenate([now.observation, carry.after]), "tanh")[0]
        return policy.remember(carry, now.action, now.reward, now.done), (distribution, value)

    carry, (distributions, values) = jax.lax.scan(step, carry, steps)
    return carry, distributions, values


def segment_loss(policy: RecurrentPolicy, ppo: PPOSettings, params: InnerParams, segment: Segment) -> Array:
    """Return PPO's loss and the squared error of the value network on one segment."""
    _, new, value = unroll(policy, params, segment.carry, segment.steps)
    surrogate = ppo_loss(new, segment.acting, segment.steps.action, segment.advantage, ppo)
    return surrogate + VALUE_WEIGHT * jnp.mean((value - segment.target) ** 2)


def segment_length(steps: int, longest: int) -> int:
    """Return the length of the segments into which a lifetime is divided."""
    return max(it for it in range(1, min(steps, longest) + 1) if steps % it == 0)


class RL2Training(GradientTraining):
    """Meta-training of the recurrent policy."""

    kind, noun, method = "rl2", "an RL² training", "RL² on training tasks"

    def __init__(self, settings: Settings, rl2: RL2Settings) -> None:
        super().__init__(settings, rl2)
        spaces = self.family.spaces
        self.rl2, self.ppo, self.net = rl2, settings.ppo, RecurrentPolicy(rl2.policy, spaces, rl2.units)
        self.steps = rl2.lifetime_steps
        self.length = segment_length(self.steps, rl2.bptt_steps)
        self.optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRADIENT), optax.adam(rl2.step_size))
        self.sample = trajectory_sampler(self.net, self.family, self.steps)
        self.tasks = jit(jax.vmap(task_sampler(self.family, settings.seed, Split.TRAIN, BALANCE), (0, None)))
        self._actors, self._learn = jit(self._actors_of), jit(self._update)
        value = init_mlp(
            run_key(settings.seed, Stream.LEARNER), (spaces.observation + rl2.units, *VALUE_HIDDEN, 1), 0.01
        )
        params = InnerParams(self.net.init(run_key(settings.seed, Stream.POLICY)), value)
        moments = init_moments((spaces.observation,)), init_moments(())
        self.state = RL2State(params, self.optimizer.init(params), *moments)

    def work(self) -> tuple[RL2State, RL2Step]:
        """Take one outer step: live, then PPO on what was lived."""
        number = self.rl2.lifetimes
        tasks, keys = self.tasks(jnp.arange(number, dtype=jnp.int32), jnp.int32(self.step))
        taken = self.sample(keys, tasks, self._actors(self.state))
        state = self._learn(self.state, taken.rollout, run_key(self.settings.seed, Stream.SHUFFLE, self.step))
        first, last = _first_and_last(np.asarray(taken.episode_return))
        diverged = int(np.asarray(taken.diverged).sum())
        return state, RL2Step(self.step, last, diverged, number * self.steps, first)

    def trained(self) -> tuple[RecurrentPolicy, Params, FixedStats]:
        """Return the policy, with the observation statistics of all training."""
        seen = self.state.observation
        return self.net, self.state.params.policy, FixedStats(np.asarray(seen.mean), np.asarray(std(seen)))

    def _actors_of(self, state: RL2State) -> Any:
        actor = actor_of(state.params.policy, state.observation)
        return jax.tree.map(lambda it: jnp.broadcast_to(it, (self.rl2.lifetimes, *it.shape)), actor)

    def _update(self, state: RL2State, rollout: Rollout, key: Key) -> RL2State:
        """Take the gradient steps of PPO on lifetimes [S, T, ...], then add to the statistics."""
        segments = self._segments(state, rollout)
        number, epochs = self.rl2.lifetimes * (self.steps // self.length), self.rl2.update_epochs
        size = max(1, number // self.rl2.minibatches)
        shuffled = jax.vmap(lambda it: jax.random.permutation(it, number))(jax.random.split(key, epochs))
        rows = shuffled[:, : number // size * size].reshape(-1, size)

        def step(carry: tuple[InnerParams, Any], rows: Array) -> tuple[tuple[InnerParams, Any], None]:
            params, optimizer = carry
            batch = jax.tree.map(lambda it: it[rows], segments)
            slope = jax.grad(lambda it: self._loss(it, batch))(params)
            change, optimizer = self.optimizer.update(slope, optimizer, params)
            return (optax.apply_updates(params, change), optimizer), None

        (params, optimizer), _ = jax.lax.scan(step, (state.params, state.optimizer), rows)
        observation = add(state.observation, rollout.observation.reshape(-1, rollout.observation.shape[-1]))
        return RL2State(params, optimizer, observation, add(state.reward, rollout.reward.ravel()))

    def _loss(self, params: InnerParams, batch: Segment) -> Array:
        losses = jax.vmap(lambda it: segment_loss(self.net, self.ppo, params, it))(batch)
        return jnp.mean(losses)

    def _segments(self, state: RL2State, rollout: Rollout) -> Segment:
        """Divide lifetimes into segments [S * T / L, ...], with advantages over whole lifetimes."""
        done = rollout.terminated | rollout.truncated
        steps = Steps(normalize(state.observation, rollout.observation), rollout.action, rollout.reward, done)
        cut = jax.tree.map(lambda it: it.reshape(len(it), -1, self.length, *it.shape[2:]), steps)

        def live(steps: Steps) -> tuple[Carry, Distribution, Array]:
            def segment(carry: Carry, steps: Steps) -> tuple[Carry, tuple[Carry, Distribution, Array]]:
                after, acting, value = unroll(self.net, state.params, carry, steps)
                return after, (carry, acting, value)

            return jax.lax.scan(segment, self.net.carry(), steps)[1]

        carry, acting, value = jax.vmap(live)(cut)
        v_t = value.reshape(done.shape)
        reward = rollout.reward / root_mean_square(state.reward) * (1.0 - self.ppo.discount)
        advantage = jax.vmap(self._advantages)(reward, v_t)
        target, advantage = advantage + v_t, gae.standardize(advantage)
        shaped = (it.reshape(value.shape) for it in (advantage, target))
        whole = Segment(cut, carry, acting, *shaped)
        return jax.tree.map(lambda it: it.reshape(-1, *it.shape[2:]), whole)

    def _advantages(self, reward: Array, value: Array) -> Array:
        """Return advantages over a lifetime [T]: no episode's end cuts them; the last value stands for what follows."""
        following = jnp.append(value[1:], value[-1])
        never = jnp.zeros_like(reward, bool)
        return gae.advantages(reward, value, following, never, never, self.ppo.discount, self.ppo.gae_lambda)


def _first_and_last(returns: np.ndarray) -> tuple[float, float]:
    """Return the mean return of the first and of the last episode that ended in each lifetime [S, T]."""
    ended = [row[np.isfinite(row)] for row in returns]
    first, last = (np.array([row[index] for row in ended if len(row)]) for index in (0, -1))
    return mean_return(first), mean_return(last)
