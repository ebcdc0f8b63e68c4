"""Records that cross modules. All are frozen pytrees; shapes are for one lifetime, unbatched."""

from typing import Any

import equinox as eqx
from jax import Array


class Rollout(eqx.Module):
    """The newest M transitions of a lifetime, as they happened (nothing normalised)."""

    observation: Array  # [M, O]
    action: Array  # [M, A], or [M] whole numbers when discrete
    reward: Array  # [M]
    terminated: Array  # [M] bool: the task ended the episode
    truncated: Array  # [M] bool: the time limit did
    next_observation: Array  # [M, O] before any reset


class Window(eqx.Module):
    """The last N transitions, oldest first; rows before the start of the lifetime are zero."""

    observation: Array  # [N, O]
    action: Array  # [N, A], one-hot when discrete
    reward: Array  # [N]
    end: Array  # [N] 1 where a trajectory ended, for either reason
    valid: Array  # [N] 0 on padding


class Experience(eqx.Module):
    """What a learner may look at in one update: everything normalised with the statistics that acted."""

    window: Window  # normalised, padding zero
    trace: Array  # [N, A] fading sum of the episode's actions up to each window position, not centred
    observation: Array  # [M, O] normalised
    next_observation: Array  # [M, O] normalised
    action: Array  # [M, A] or [M], as the policy emitted it
    reward: Array  # [M] in units of the root mean square reward, not centred
    terminated: Array  # [M] bool
    truncated: Array  # [M] bool
    features: Array  # [F] task features, [0] when the family has none
    progress: Array  # [2] share of the lifetime that has passed, and log10 of its length in updates


class Trained(eqx.Module):
    """All that the inner gradient descent changes."""

    policy: Any  # policy parameters, theta
    extra: Any  # what the learner trains beside it: memory, value network, both


class Outcome(eqx.Module):
    """What a lifetime leaves behind."""

    final_return: Array  # mean return of the scoring trajectories; NaN if anything was non-finite
    episode_return: Array  # [updates, M] return of the episode that ended at this step, NaN where none did
    kl: Array  # [updates] KL between the policies before and after each update
    correlations: Array  # [updates, O + A] of the reward, at each update; [updates, 0] unless the plan asks
    nonfinite: Array  # updates in which something non-finite appeared
    exploded: Array  # episodes that the simulator ended because it failed
    env_steps: Array  # steps simulated, scoring included
    policy: Any  # trained policy parameters
    normaliser: Any  # statistics the policy acts with
