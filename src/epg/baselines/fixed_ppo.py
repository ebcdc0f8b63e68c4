"""The best fixed MLP of a family (domain randomization), beside the linear one of baselines/fixed_policy.py.

One policy is trained by PPO on many training tasks at once, and deployed with no learning. The policy is the MLP that
lifetimes of the family train, with the observation statistics of all training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from epg.baselines.ppo_training import PPOState, PPOTraining, minibatch_size
from epg.baselines.training import TrainingStep
from epg.core.errors import require
from epg.core.types import InnerParams, Rollout
from epg.families.registry import find_family
from epg.learners import gae
from epg.learners.ppo import PPO, VALUE_WEIGHT, ppo_loss
from epg.lifetime.normalizer import normalize
from epg.lifetime.sampling import Trajectories
from epg.policies.base import distribution
from epg.policies.distributions import Distribution
from epg.policies.mlp import MlpPolicy
from epg.settings import Settings
from epg.settings.checks import require_positive, require_small


@dataclass(frozen=True)
class FixedPPOSettings:
    """PPO on many tasks at once. Discount, lambda and clipping are those of `PPOSettings`."""

    env_steps: int = 0
    """Budget of environment steps."""
    tasks: int = 64
    """Tasks per outer step."""
    task_steps: int = 512
    """Environment steps on each of them, from a reset."""
    update_epochs: int = 10
    """Epochs over the data of one outer step."""
    minibatches: int = 16
    """Gradient steps per epoch."""
    step_size: float = 3e-4
    """Step size of Adam at the beginning; it falls linearly to zero over the budget."""

    def __post_init__(self) -> None:
        require_positive(self, "fixed-ppo", "tasks", "task_steps", "update_epochs", "minibatches", "step_size")
        require_small("fixed-ppo: tasks x task_steps", self.tasks, self.task_steps)
        require(self.env_steps >= 0, f"fixed-ppo.env_steps must not be negative, not {self.env_steps}.")


class Rows(NamedTuple):
    """What PPO sees of N steps, of whatever tasks."""

    observation: Array  # [N, O] normalized
    action: Array  # [N, A], or [N] integers
    acting: Distribution  # the distributions that acted, [N, ...]
    advantage: Array  # [N] standardized
    target: Array  # [N] of the value network


class FixedPPOTraining(PPOTraining):
    """Training of one policy for all tasks."""

    net: MlpPolicy
    kind, noun, method = "fixed-ppo", "a training of a fixed policy by PPO", "PPO on training tasks"

    def __init__(self, settings: Settings, options: FixedPPOSettings) -> None:
        spaces = find_family(settings.family).spaces
        net = MlpPolicy(replace(settings.policy, obs_stats="fixed"), spaces)
        self.learner = PPO(settings.ppo, net, spaces)
        super().__init__(settings, options, net, options.tasks, options.task_steps)

    def step_size(self) -> Callable[[Array], Array]:
        """Return the schedule of Adam's step size, a function of the gradient steps taken."""
        rows, options = self.lifetimes * self.steps, self.options
        gradient_steps = options.update_epochs * (rows // minibatch_size(rows, options.minibatches))
        outer_steps = -(-options.env_steps // rows)
        schedule: Callable[[Array], Array] = optax.linear_schedule(options.step_size, 0.0, outer_steps * gradient_steps)
        return schedule

    def record(self, taken: Trajectories) -> TrainingStep:
        """Return the mean return of the first episode of each task, as far as it was lived."""
        fitness = float(first_returns(taken.rollout).mean())
        return TrainingStep(self.step, fitness, int(np.asarray(taken.diverged).sum()), self.lifetimes * self.steps)

    def loss(self, params: InnerParams, batch: Rows) -> Array:
        """Return PPO's loss and the squared error of the value network."""
        new = distribution(self.net, params.policy, batch.observation)
        surrogate = ppo_loss(new, batch.acting, batch.action, batch.advantage, self.ppo)
        error = jnp.mean((self.learner.value(params.learner, batch.observation) - batch.target) ** 2)
        return surrogate + VALUE_WEIGHT * error

    def data(self, state: PPOState, rollout: Rollout) -> Rows:
        """Return the steps of all tasks as rows [S * T, ...]; advantages end with their episode."""
        now, following = (normalize(state.observation, it) for it in (rollout.observation, rollout.next_observation))
        lived = replace(rollout, observation=now, next_observation=following)
        reward = self.scaled_reward(state, rollout.reward)
        advantage, target = jax.vmap(self.learner.estimate, (None, 0, 0))(state.params.learner, reward, lived)
        acting = jax.vmap(jax.vmap(partial(distribution, self.net, state.params.policy)))(now)
        rows = Rows(now, rollout.action, acting, gae.standardize(advantage), target)
        return jax.tree.map(lambda it: it.reshape(-1, *it.shape[2:]), rows)


def first_returns(rollout: Rollout) -> np.ndarray:
    """Return the sum of rewards of each row's first episode, [S, T] -> [S]; one that did not end counts as it is."""
    reward, done = np.asarray(rollout.reward), np.asarray(rollout.terminated | rollout.truncated)
    over = np.cumsum(done, axis=1) - done > 0
    return np.where(over, 0.0, reward).sum(axis=1)
