"""Trajectories of given policies, for learners outside a lifetime (MAML, RL²): nothing is updated while they act."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key, Stream, stream_key
from epg.core.runtime import jit
from epg.core.types import Rollout
from epg.families.base import Family, HostFamily, JaxFamily, Task
from epg.lifetime.env_step import Actor, initial_env_state
from epg.lifetime.host_stepper import HostStepper
from epg.lifetime.scan_driver import draw, rollout
from epg.policies.base import Policy


class Trajectories(NamedTuple):
    """What S policies did in T steps from fresh episodes on, resets included."""

    rollout: Rollout  # leaves [S, T, ...]
    episode_return: Array  # [S, T] return of the episode that ended at this step, NaN where none did
    diverged: Array  # [S] episodes that ended because the simulation diverged


Sample = Callable[[Key, Task, Actor], Trajectories]
"""(keys [S], tasks [S, ...], actors [S, ...]) -> trajectories; the steps are those of a lifetime's first update."""


def trajectory_sampler(policy: Policy, family: Family, steps: int) -> Sample:
    """Compile the acting of a batch of policies for `steps` steps, with the driver that the family needs."""
    if isinstance(family, HostFamily):
        return _host_sampler(policy, family, steps)
    assert isinstance(family, JaxFamily)

    def one(key: Key, task: Task, actor: Actor) -> Trajectories:
        action_key, reset_key = stream_key(key, Stream.ACTION), stream_key(key, Stream.RESET)
        first = family.initial_state(jax.random.fold_in(reset_key, 0), task)
        env = initial_env_state(policy, family, task, family.initial_readout(first))
        draws = draw(family, task, jax.random.fold_in(action_key, 0), jax.random.fold_in(reset_key, 1), steps)
        _, (taken, states) = rollout(policy, family, task, actor, env, draws)
        return Trajectories(taken, states.final_return, jnp.sum(states.diverged, dtype=jnp.int32))

    return jit(jax.vmap(one))


def _host_sampler(policy: Policy, family: HostFamily, steps: int) -> Sample:
    stepper = HostStepper(policy, family)
    unpack = jit(jax.vmap(stepper.packing.rollout, in_axes=1))

    def sample(keys: Key, tasks: Task, actors: Actor) -> Trajectories:
        batch = stepper.batch(keys, tasks)
        first = stepper.begin(batch, stepper.draw_states(batch, 0, None)[0])
        states = stepper.run(batch, actors, first, stepper.draw(batch, 0, steps))
        column = stepper.packing.column
        diverged = (column(states[1:], "diverged") > 0).sum(axis=0, dtype="int32")
        returns = column(states[1:], "final_return").T
        return Trajectories(unpack(states), jnp.asarray(returns), jnp.asarray(diverged))

    return sample
