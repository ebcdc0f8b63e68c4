"""A JAX family simulated on the host, step by step: what the host driver and the checker are tried on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from epg.families.base import HostFamily, JaxFamily, Reading


@dataclass(frozen=True, kw_only=True)
class Outside(HostFamily):
    """A JAX family stepped outside the lifetime: what its simulator says is its state, reward and terminated."""

    inside: JaxFamily
    simulator: "type[Slowly] | None" = None

    @cached_property
    def state(self):
        """Return an example of the state, and how it is put back together."""
        task = self.inside.sample(jax.random.key(0))
        return ravel_pytree(self.inside.reset(jax.random.key(0), task))

    @cached_property
    def flat_step(self):
        """Return the step of the family inside, from one vector to the next."""

        def step(now, action, task):
            after, reward, terminated = self.inside.step(self.state[1](now[:-2]), action, task)
            return jnp.append(ravel_pytree(after)[0], jnp.stack([reward, terminated.astype(jnp.float32)]))

        return jax.jit(step)

    @property
    def width(self):
        return self.state[0].size + 2

    def simulate(self, tasks):
        return (self.simulator or Slowly)(self, tasks)

    def fresh(self, key, task):
        return ravel_pytree(self.inside.reset(key, task))[0]

    def view(self, raw, task):
        return self.inside.observe(self.state[1](raw[:-2]), task)

    def steer(self, raw, action, task):
        control = jnp.atleast_1d(action).astype(jnp.float32)
        return jnp.where(jnp.isfinite(control), control, 0.0)

    def read(self, step, task):
        exploded = ~jnp.all(jnp.isfinite(step.action))
        reward, terminated = step.after[-2], (step.after[-1] > 0) | exploded
        truncated = (step.age >= self.horizon) & ~terminated
        end = terminated | truncated
        raw = jnp.where(end, jnp.append(step.fresh, jnp.zeros(2)), step.after)
        return Reading(self.view(step.after, task), reward, terminated, truncated, exploded, end, raw)


class Slowly:
    """Steps each row by itself."""

    def __init__(self, family: Outside, tasks: Sequence) -> None:
        self.family, self.tasks = family, tasks
        self.now = np.zeros((len(tasks), family.width), np.float32)
        self.step = family.flat_step
        self.moved = 0

    def prepare(self, fresh):
        return fresh

    def repeat(self, times):
        return type(self)(self.family, [task for task in self.tasks for _ in range(times)])

    def begin(self, fresh):
        self.restart(np.ones(len(fresh), bool), fresh)
        return self.now.copy()

    def restart(self, ended, fresh):
        self.now[ended] = 0.0
        self.now[ended, :-2] = fresh[ended]

    def advance(self, control, fresh, rows=None):
        for row in range(len(self.tasks)) if rows is None else rows:
            discrete = self.family.spaces.discrete
            action = jnp.int32(control[row, 0]) if discrete else jnp.asarray(control[row])
            self.now[row] = self.step(self.now[row], action, self.tasks[row])
            self.moved += 1
        return self.now.copy()


def outside(family: JaxFamily, kind: type[Outside] = Outside, **fields) -> Outside:
    """Return the same family, simulated by the host."""
    shared = ("name", "version", "summary", "spaces", "horizon", "sample", "features")
    return kind(inside=family, **({name: getattr(family, name) for name in shared} | fields))
