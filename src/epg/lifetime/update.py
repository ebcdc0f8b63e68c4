"""Algorithm 2: training a fresh policy on one task with a fixed learner. This file is its update; the drivers loop.

begin:   fresh policy, memory, inner Adam, statistics, empty window            lines 1-2
repeat U / M times, by a driver (scan_driver.py, host_driver.py):
    act for M steps, lifetime/env_step.py                                      lines 4-8
    update: window -> normalized experience -> gradient steps -> statistics    lines 9-12
score the final policy on fresh episodes; in a family without resets, as it goes on
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from epg.core.rng import Key, Stream, stream_key
from epg.core.spaces import Spaces
from epg.core.types import Experience, InnerParams, LifetimeResult, MetaParams, Rollout, Window
from epg.learners.base import InnerState, Learner
from epg.lifetime.normalizer import Constants, FixedStats, Normalizer, init_normalizer
from epg.lifetime.policy_init import initial_policy
from epg.lifetime.window import build_experience, empty_window, push, update_stats
from epg.policies.base import Policy, distribution
from epg.policies.distributions import Distribution, kl_divergence
from epg.settings import LifetimeSettings

ADAM = {"b1": 0.9, "b2": 0.999}


@dataclass(frozen=True)
class InnerConfig:
    """The fixed part of a lifetime: what is compiled into its program."""

    learner: Learner
    policy: Policy
    lifetime: LifetimeSettings
    spaces: Spaces
    window: int  # N
    obs_stats: FixedStats | None = None  # fixed observation statistics; None: running ones
    constant_inputs: Constants = ()  # observations that running statistics must not normalize away

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """Return the inner Adam (paper, section 4)."""
        return optax.adam(self.lifetime.learning_rate, **ADAM)


class LearnerState(eqx.Module):
    """The state of a lifetime between two updates."""

    params: InnerParams
    optimizer: Any
    normalizer: Normalizer
    window: Window
    updates: Array  # updates made
    nonfinite: Array  # updates in which a non-finite number appeared


class UpdateStats(eqx.Module):
    """What is recorded of one update."""

    kl: Array  # mean KL(before || after) over the newest rows
    measured: Any  # what the learner itself measured; usually nothing


def begin(config: InnerConfig, key: Key, policy_init: Array) -> LearnerState:
    """Begin a lifetime: initial policy, memory, optimizer, statistics, and an empty window."""
    spaces = config.spaces
    empty = init_normalizer(spaces.observation, spaces.action, config.obs_stats, config.constant_inputs)
    policy, normalizer = initial_policy(config.policy, stream_key(key, Stream.POLICY), empty, policy_init)
    params = InnerParams(policy, config.learner.init(stream_key(key, Stream.LEARNER)))
    return LearnerState(
        params,
        config.optimizer.init(params),
        normalizer,
        empty_window(config.window, config.spaces),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def update(
    config: InnerConfig, state: LearnerState, rollout: Rollout, features: Array, meta: MetaParams, batches: Array
) -> tuple[LearnerState, UpdateStats]:
    """Learn from the newest M transitions: gradient steps on minibatches of them, then new statistics."""
    window = push(state.window, rollout, config.spaces)
    experience = build_experience(window, rollout, state.normalizer, features)
    before = _distributions(config, state.params, experience)
    inner = config.learner.update(
        InnerState(state.params, state.optimizer),
        experience,
        meta,
        batches,
        config.optimizer,
        step_scale(config.lifetime, state.updates),
    )
    finite = _all_finite((inner.params, rollout.reward, rollout.observation))
    after = LearnerState(
        inner.params,
        inner.optimizer,
        update_stats(state.normalizer, rollout, config.spaces, config.obs_stats is not None, config.constant_inputs),
        window,
        state.updates + 1,
        state.nonfinite + jnp.where(finite, 0, 1),
    )
    kl = jnp.mean(kl_divergence(before, _distributions(config, inner.params, experience)))
    return after, UpdateStats(kl, config.learner.measure(state.params, experience, meta))


def step_scale(lifetime: LifetimeSettings, updates: Array) -> Array | None:
    """Return this update's step size relative to the first one; None if it never changes."""
    if lifetime.learning_rate_end is None:
        return None
    passed = updates / lifetime.annealed
    if lifetime.annealed < lifetime.updates:
        passed = jnp.minimum(passed, 1.0)
    return 1.0 + passed * (lifetime.learning_rate_end / lifetime.learning_rate - 1.0)


def minibatches(lifetime: LifetimeSettings, key: Key) -> Array:
    """Return row indices [steps, minibatch]: shuffled, each of the newest M rows once per epoch of the update."""
    rows = jnp.arange(lifetime.steps_per_update)
    if lifetime.replay:  # any numbers: the learner turns them into rows of the window
        steps = lifetime.update_epochs * lifetime.steps_per_update // lifetime.minibatch
        return jax.random.randint(key, (steps, lifetime.minibatch), 0, 2**30)
    if lifetime.minibatch == lifetime.steps_per_update:  # the order within a minibatch changes nothing
        return jnp.tile(rows, (lifetime.update_epochs, 1))
    keys = jax.random.split(key, lifetime.update_epochs)
    shuffled = jax.vmap(lambda one: jax.random.permutation(one, rows))(keys)
    return shuffled.reshape(-1, lifetime.minibatch)


class LifetimeLog(eqx.Module):
    """What a driver records of a lifetime."""

    episode_return: Array  # [updates, M] return of the episode that ended at this step, NaN where none did
    reached: Array  # [updates] episodes that the task itself ended, not a time limit or a divergence
    updates: UpdateStats  # leaves [updates, ...]
    scores: Array  # [episodes] returns of the scoring trajectories
    survived: Array  # share of the time limit that they lasted
    diverged: Array  # episodes that ended because the simulation diverged
    env_steps: Array  # steps simulated, scoring included


def result_of(state: LearnerState, log: LifetimeLog) -> LifetimeResult:
    """Close a lifetime."""
    scored = jnp.all(jnp.isfinite(log.scores))
    finite = (state.nonfinite == 0) & scored
    return LifetimeResult(
        final_return=jnp.where(finite, jnp.mean(log.scores), jnp.nan),
        survived=log.survived,
        reached=log.reached,
        episode_return=log.episode_return,
        kl=log.updates.kl,
        measured=log.updates.measured,
        nonfinite=state.nonfinite + jnp.where(scored, 0, 1),
        diverged=log.diverged,
        env_steps=log.env_steps,
        policy=state.params.policy,
        normalizer=state.normalizer,
        window=state.window,
    )


def _distributions(config: InnerConfig, params: InnerParams, experience: Experience) -> Distribution:
    return distribution(config.policy, params.policy, experience.observation)


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
