"""RL² (Duan et al. 2016): a recurrent policy trained by PPO over whole lifetimes. It learns a task within its state.

A lifetime is one trajectory: returns, advantages and the GRU's state go on across the ends of episodes, so that what
exploration earns later counts. Gradients are propagated through at most `bptt_steps` steps (truncated backpropagation
through time); a segment starts from the state that the acting policy had there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.baselines.ppo_training import PPOState, PPOTraining
from epg.baselines.training import TrainingStep, mean_return
from epg.core.types import InnerParams, Rollout
from epg.families.registry import find_family
from epg.learners import gae
from epg.learners.ppo import VALUE_WEIGHT, ppo_loss
from epg.lifetime.normalizer import normalize
from epg.lifetime.sampling import Trajectories
from epg.policies.base import Carry
from epg.policies.distributions import Distribution
from epg.policies.mlp import apply_mlp
from epg.policies.recurrent import RecurrentPolicy
from epg.settings import PPOSettings, RL2Settings, Settings


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


class RL2Training(PPOTraining):
    """Meta-training of the recurrent policy; its value network sees the observation and the GRU's state."""

    net: RecurrentPolicy
    kind, noun, method = "rl2", "an RL² training", "RL² on training tasks"

    def __init__(self, settings: Settings, rl2: RL2Settings) -> None:
        net = RecurrentPolicy(rl2.policy, find_family(settings.family).spaces, rl2.units)
        super().__init__(settings, rl2, net, rl2.lifetimes, rl2.lifetime_steps)
        self.length = segment_length(self.steps, rl2.bptt_steps)

    def record(self, taken: Trajectories) -> RL2Step:
        """Return the returns of first and last episodes."""
        first, last = _first_and_last(np.asarray(taken.episode_return))
        diverged = int(np.asarray(taken.diverged).sum())
        return RL2Step(self.step, last, diverged, self.lifetimes * self.steps, first)

    def loss(self, params: InnerParams, batch: Segment) -> Array:
        """Return the mean loss of a minibatch of segments."""
        losses = jax.vmap(lambda it: segment_loss(self.net, self.ppo, params, it))(batch)
        return jnp.mean(losses)

    def data(self, state: PPOState, rollout: Rollout) -> Segment:
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
        advantage = jax.vmap(self._advantages)(self.scaled_reward(state, rollout.reward), v_t)
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
