"""Rollouts for the family checker: given tasks, keys and actions, through the drivers' own stepping loops."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.core.runtime import jit
from epg.families.base import HostFamily, JaxFamily, SimStep, Task
from epg.lifetime import scan_driver
from epg.lifetime.env_step import Actor, initial_env_state
from epg.lifetime.host_stepper import Draws, HostStepper
from epg.policies.distributions import draw_noise
from epg.policies.open_loop import OpenLoopPolicy

STEPS, ROWS = 200, 3
"""Size of every rollout. One size for all: compiling is most of the time a check takes."""


class Rows(NamedTuple):
    """What a rollout begins with."""

    tasks: Task  # leaves [S, ...]
    keys: Key  # [S] decide where episodes begin
    actions: Array  # [T, S, A], or [T, S] integers

    def row(self, index: int) -> "Rows":
        """Return one row, as the only one."""
        tasks, keys = jax.tree.map(lambda leaf: leaf[index : index + 1], (self.tasks, self.keys))
        return Rows(tasks, keys, self.actions[:, index : index + 1])


class RolloutRecord(NamedTuple):
    """What S rows did in T steps."""

    observation: np.ndarray  # [T, S, O] before any reset
    reward: np.ndarray  # [T, S]
    terminated: np.ndarray  # [T, S]
    diverged: np.ndarray  # [T, S]

    def row(self, index: int, steps: int = STEPS) -> "RolloutRecord":
        """Return the first steps of one row, as the only one."""
        return RolloutRecord(*(part[:steps, index : index + 1] for part in self))

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        return all(np.isfinite(part).all() for part in self)

    def equals(self, other: "RolloutRecord") -> bool:
        """Whether every bit is the same; one NaN equals another."""
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self, other, strict=True))


class CheckedFamily:
    """A family, what is drawn to try it out, and its compiled rollout."""

    def __init__(self, family: Any) -> None:
        self.family = family

    @cached_property
    def rollout(self) -> Callable[[Rows], RolloutRecord]:
        """Return what simulates rows; another record of it traces the family's functions anew."""
        return host_rollout(self.family) if isinstance(self.family, HostFamily) else scan_rollout(self.family)

    @cached_property
    def tasks(self) -> Callable[[Key], Task]:
        """Return what draws a task per key."""
        return jit(jax.vmap(self.family.sample))

    def rows(self, seed: int = 0) -> Rows:
        """Draw tasks, episodes and standard normal (or uniform) actions."""
        task, reset, act = jax.random.split(jax.random.key(seed), 3)
        noise = draw_noise(act, self.family.spaces, STEPS * ROWS).reshape(STEPS, ROWS, -1)
        actions = jnp.argmax(noise, axis=-1) if self.family.spaces.discrete else noise
        return Rows(self.tasks(jax.random.split(task, ROWS)), jax.random.split(reset, ROWS), actions)

    @cached_property
    def first_step(self) -> tuple[Task, Key, SimStep]:
        """Return a task, the key of an episode and its first step, unbatched."""
        family, key = self.family, jax.random.key(0)
        task, action = family.sample(key), self.rows().actions[0, 0]
        state = family.initial_state(key, task)
        if isinstance(family, HostFamily):
            simulator = family.simulate([task])
            states = simulator.prepare(np.asarray(state)[None])
            before, state = simulator.begin(states)[0], jnp.asarray(states[0])
            ctrl = np.asarray(family.to_ctrl(jnp.asarray(before), action, task))
            after = simulator.advance(ctrl[None], states)[0]
        else:
            before = family.initial_readout(state)
            after = family.advance(before, action, task)
        return task, key, SimStep(before, action, after, state, jnp.ones(()))


def scan_rollout(family: JaxFamily) -> Callable[[Rows], RolloutRecord]:
    """Return the scan driver's loop with given actions."""
    policy, nobody = OpenLoopPolicy(), Actor((), jnp.zeros(()), jnp.ones(()))

    def one(task: Task, key: Key, actions: Array) -> tuple[Array, ...]:
        states = jax.vmap(family.initial_state, (0, None))(jax.random.split(key, STEPS + 1), task)
        first, later = (jax.tree.map(lambda leaf, part=part: leaf[part], states) for part in (0, slice(1, None)))
        env = initial_env_state(policy, family, task, family.initial_readout(first))
        draws = scan_driver.Draws(actions, later)
        taken, after = scan_driver.rollout(policy, family, task, nobody, env, draws)[1]
        return taken.next_observation, after.reward, after.terminated, after.diverged

    compiled = jit(jax.vmap(one, (0, 0, 1), 1))
    return lambda rows: RolloutRecord(*map(np.asarray, compiled(*rows)))


def host_rollout(family: HostFamily) -> Callable[[Rows], RolloutRecord]:
    """Return the host driver's loop with given actions."""
    stepper = HostStepper(OpenLoopPolicy(), family)

    def run(rows: Rows) -> RolloutRecord:
        batch, number = stepper.batch(rows.keys, rows.tasks), len(rows.keys)
        states = stepper.draw_states(batch, 0, STEPS + 1)
        nobody = Actor((), jnp.zeros((number, 1)), jnp.ones((number, 1)))
        draws, packed = Draws(rows.actions, states[1:]), stepper.begin(batch, states[0])
        found = np.stack([seen.copy() for seen in stepper.steps(batch, nobody, packed, draws)][1:])
        column = partial(stepper.packing.column, found)
        return RolloutRecord(
            column("next_observation"), column("reward"), column("terminated") > 0, column("diverged") > 0
        )

    return run
