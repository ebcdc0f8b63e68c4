"""A JAX family simulated on the host, step by step: what the host driver and the checker are tested on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from epg.families.base import HostFamily, JaxFamily, StepResult


@dataclass(frozen=True, kw_only=True)
class Outside(HostFamily):
    """A JAX family stepped outside the lifetime: the readout of its simulator is its state, reward and terminated."""

    inside: JaxFamily
    simulator: "type[Slowly] | None" = None

    @cached_property
    def state(self):
        """Return an example of the flat state, and the function that rebuilds a state from one."""
        task = self.inside.sample(jax.random.key(0))
        return ravel_pytree(self.inside.reset(jax.random.key(0), task))

    @cached_property
    def flat_step(self):
        """Return the step of the family inside, from one readout to the next."""

        def step(now, action, task):
            after, reward, terminated = self.inside.step(self.state[1](now[:-2]), action, task)
            return jnp.append(ravel_pytree(after)[0], jnp.stack([reward, terminated.astype(jnp.float32)]))

        return jax.jit(step)

    @property
    def readout_size(self):
        return self.state[0].size + 2

    def simulate(self, tasks):
        return (self.simulator or Slowly)(self, tasks)

    def initial_state(self, key, task):
        return ravel_pytree(self.inside.reset(key, task))[0]

    def observation(self, readout, task):
        return self.inside.observe(self.state[1](readout[:-2]), task)

    def to_ctrl(self, readout, action, task):
        ctrl = jnp.atleast_1d(action).astype(jnp.float32)
        return jnp.where(jnp.isfinite(ctrl), ctrl, 0.0)

    def step_result(self, step, task):
        diverged = ~jnp.all(jnp.isfinite(step.action))
        reward, terminated = step.after[-2], (step.after[-1] > 0) | diverged
        truncated = (step.age >= self.horizon) & ~terminated
        reset = terminated | truncated if self.resets else terminated
        readout = jnp.where(reset, jnp.append(step.reset_state, jnp.zeros(2)), step.after)
        return StepResult(
            next_observation=self.observation(step.after, task),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            diverged=diverged,
            reset=reset,
            readout=readout,
        )


class Slowly:
    """Steps each row by itself."""

    def __init__(self, family: Outside, tasks: Sequence) -> None:
        self.family, self.tasks = family, tasks
        self.now = np.zeros((len(tasks), family.readout_size), np.float32)
        self.step = family.flat_step
        self.moved = 0

    def prepare(self, states):
        return states

    def repeat(self, times):
        return type(self)(self.family, [task for task in self.tasks for _ in range(times)])

    def begin(self, states):
        self.reset(np.ones(len(states), bool), states)
        return self.now.copy()

    def reset(self, rows, states):
        self.now[rows] = 0.0
        self.now[rows, :-2] = states[rows]

    def advance(self, ctrl, reset_states, rows=None):
        for row in range(len(self.tasks)) if rows is None else rows:
            discrete = self.family.spaces.discrete
            action = jnp.int32(ctrl[row, 0]) if discrete else jnp.asarray(ctrl[row])
            self.now[row] = self.step(self.now[row], action, self.tasks[row])
            self.moved += 1
        return self.now.copy()


def outside(family: JaxFamily, kind: type[Outside] = Outside, **fields) -> Outside:
    """Return the same family, simulated by the host."""
    shared = ("name", "version", "summary", "spaces", "horizon", "resets", "sample", "features", "constant_inputs")
    return kind(inside=family, **({name: getattr(family, name) for name in shared} | fields))


def without_resets(family: JaxFamily) -> JaxFamily:
    """Return point-goal without resets; its goal is reached when it moves east at 0.1 a second."""

    def step(state, action, task):
        after, reward, _ = family.step(state, action, task)
        return after, reward, after.velocity[0] > 0.1

    return replace(family, step=step, resets=False)
