"""Records that cross modules. All are frozen pytrees; shapes are for one lifetime, unbatched."""

from typing import Any, NamedTuple

import equinox as eqx
from jax import Array


class MetaParams(NamedTuple):
    """What evolution varies and hands to a lifetime. A pytree: a new epoch needs no new compilation."""

    phi: Array  # [D] flat loss parameters; [0] for PPO and REINFORCE
    alpha: Array  # guidance weight, shared by all lifetimes of a shard
    policy_init: Array  # [P] flat initial policy parameters; [0]: drawn fresh; of a pool: see lifetime/policy_init.py


class Rollout(eqx.Module):
    """The newest M transitions of a lifetime, not normalized."""

    observation: Array  # [M, O]
    action: Array  # [M, A], or [M] integers when discrete
    reward: Array  # [M]
    terminated: Array  # [M] bool: the task ended the episode
    truncated: Array  # [M] bool: the time limit ended it
    next_observation: Array  # [M, O] before any reset


class Window(eqx.Module):
    """The last N transitions, oldest first; rows before the start of the lifetime are zero."""

    observation: Array  # [N, O]
    action: Array  # [N, A], one-hot when discrete
    reward: Array  # [N]
    done: Array  # [N] 1 where an episode ended, terminated or truncated
    valid: Array  # [N] 0 on padding


class Experience(eqx.Module):
    """What a learner may see in one update, normalized with the statistics that were used for acting."""

    window: Window  # normalized, padding zero
    action_trace: Array  # [N, A] decayed sum of the episode's actions up to each window position, not centred
    observation: Array  # [M, O] normalized
    next_observation: Array  # [M, O] normalized
    action: Array  # [M, A] or [M], as the policy emitted it
    reward: Array  # [M] divided by the root mean square reward, not centred
    terminated: Array  # [M] bool
    truncated: Array  # [M] bool
    task_features: Array  # [F], [0] when the family has none


class InnerParams(eqx.Module):
    """Everything that the inner gradient descent trains."""

    policy: Any  # policy parameters, theta
    learner: Any  # what the learner trains beside it: memory, value network, or both


class LifetimeResult(eqx.Module):
    """What a lifetime returns."""

    final_return: Array  # mean return of the scoring trajectories; NaN if anything was non-finite
    survived: Array  # share of the time limit that the scoring trajectories lasted
    reached: Array  # [updates] episodes that the task itself ended: without resets, goals that were reached
    episode_return: Array  # [updates, M] return of the episode that ended at this step, NaN where none did
    kl: Array  # [updates] KL between the policies before and after each update
    measured: Any  # what the learner measured at each update, leaves [updates, ...]; usually nothing
    nonfinite: Array  # number of updates in which something non-finite appeared
    diverged: Array  # number of episodes that ended because the simulation diverged
    env_steps: Array  # steps simulated, scoring included
    policy: Any  # trained policy parameters
    normalizer: Any  # observation, action and reward statistics at the end
    window: Window  # the last N transitions, not normalized
