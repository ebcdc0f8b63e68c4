"""A family and how to try it out: what the checker's questions are asked of, whichever way it is simulated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.parts.families.base import HostFamily, JaxFamily, Simulator, Step, Task, unstack
from epg.parts.policy import draw_noise
from epg.words.keys import Key
from epg.words.runtime import COMPILER

STEPS, BRIEF = 200, 10
"""Length of a rollout, and of one whose rounding errors must not grow."""
ROWS = 3
"""Lifetimes in a rollout. All rollouts are alike in shape: compiling is most of the time a check takes."""

compiled = partial(jax.jit, compiler_options=COMPILER)


class Trace(NamedTuple):
    """What S rows did in T steps."""

    observation: np.ndarray  # [T, S, O] before any restart
    reward: np.ndarray  # [T, S]
    terminated: np.ndarray  # [T, S]
    exploded: np.ndarray  # [T, S]
    said: np.ndarray  # [T, S, W] by the simulator, if there is one

    def row(self, index: int) -> "Trace":
        """Return one row, as the only one."""
        return Trace(*(part[:, index : index + 1] for part in self))

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        return all(np.isfinite(part).all() for part in self)

    def equals(self, other: "Trace") -> bool:
        """Whether every bit is the same; one NaN is as good as another."""
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self, other, strict=True))

    def resembles(self, other: "Trace") -> bool:
        """Whether what a learner sees of them differs by rounding errors only."""
        return close(self[:4], other[:4])


class Rows(NamedTuple):
    """What a rollout begins with."""

    tasks: Task  # leaves [S, ...]
    keys: Key  # [S] decide where episodes begin
    actions: Array  # [T, S, A], or [T, S] whole numbers

    def row(self, index: int) -> "Rows":
        """Return one row, as the only one."""
        tasks = jax.tree.map(lambda leaf: leaf[index : index + 1], self.tasks)
        return Rows(tasks, self.keys[index : index + 1], self.actions[:, index : index + 1])


Pieces = Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]
"""The pure functions of a family, each with arguments to try it on."""


@dataclass(frozen=True)
class Trial:
    """A family, and what is drawn to try it out."""

    family: Any

    def rows(self, seed: int = 0, steps: int = STEPS, number: int = ROWS) -> Rows:
        """Draw tasks, episodes and standard normal (or uniform) actions."""
        return self._drawn(jnp.asarray(seed, jnp.uint32), steps=steps, number=number)

    @cached_property
    def _drawn(self) -> Callable[..., Rows]:
        def draw(seed: Array, steps: int, number: int) -> Rows:
            task, reset, act = (jax.random.fold_in(jax.random.key(seed), stream) for stream in range(3))
            noise = draw_noise(act, self.family.spaces, steps * number).reshape(steps, number, -1)
            actions = jnp.argmax(noise, axis=-1) if self.family.spaces.discrete else noise
            tasks = jax.vmap(self.family.sample)(jax.random.split(task, number))
            return Rows(tasks, jax.random.split(reset, number), actions)

        return compiled(draw, static_argnames=("steps", "number"))

    def one(self) -> tuple[Task, Key, Array]:
        """Draw a task, a key and an action."""
        rows = self.rows(steps=BRIEF)
        return self.family.sample(jax.random.key(0)), rows.keys[0], rows.actions[0, 0]


@dataclass(frozen=True)
class JaxTrial(Trial):
    """A family simulated inside JAX."""

    family: JaxFamily

    def pieces(self) -> Pieces:
        """Return reset, observe and step."""
        (task, key, action), family = self.one(), self.family
        state = family.reset(key, task)
        return {
            "reset": (family.reset, (key, task)),
            "observe": (family.observe, (state, task)),
            "step": (family.step, (state, action, task)),
        }

    def shapes(self) -> str | None:
        """Say what is not as declared."""
        (task, key, action), family = self.one(), self.family
        state = family.reset(key, task)
        after, reward, terminated = family.step(state, action, task)
        if jax.tree.map(_kind, after) != jax.tree.map(_kind, state):
            return "step must return a state of the same structure, shapes and dtypes as reset"
        return unlike(
            {
                "observe": (family.observe(state, task), jnp.float32, (family.spaces.observation,)),
                "step's reward": (reward, jnp.float32, ()),
                "step's terminated": (terminated, jnp.bool_, ()),
            }
        )

    def rollout(self, rows: Rows) -> Trace:
        """Simulate all rows; functions are traced anew each time, so that impure ones show."""
        family = self.family

        def one(task: Task, key: Key, actions: Array) -> tuple[Array, Array, Array]:
            first = family.reset(key, task)

            def body(state: Any, action: Array) -> tuple[Any, tuple[Array, Array, Array]]:
                after, reward, terminated = family.step(state, action, task)
                following = jax.tree.map(lambda a, b: jnp.where(terminated, a, b), first, after)
                return following, (family.observe(after, task), reward, terminated)

            return jax.lax.scan(body, first, actions)[1]

        seen = compiled(jax.vmap(one, (0, 0, 1), 1))(*rows)
        observation, reward, terminated = (np.asarray(part) for part in seen)
        return Trace(observation, reward, terminated, np.zeros_like(terminated), np.zeros((*reward.shape, 0)))


@dataclass(frozen=True)
class HostTrial(Trial):
    """A family simulated outside JAX."""

    family: HostFamily

    @cached_property
    def _fresh(self) -> Callable[..., Array]:
        def many(key: Key, task: Task, number: int) -> Array:
            return jax.vmap(self.family.fresh, (0, None))(jax.random.split(key, number), task)

        def all_rows(keys: Key, tasks: Task, number: int) -> Array:
            return jax.vmap(partial(many, number=number), (0, 0), 1)(keys, tasks)

        return compiled(all_rows, static_argnames="number")

    @cached_property
    def _steer(self) -> Callable[..., Array]:
        return compiled(jax.vmap(self.family.steer))

    @cached_property
    def _read(self) -> Callable[..., Any]:
        return compiled(jax.vmap(self.family.read))

    def steer(self, raw: np.ndarray, action: Array | np.ndarray, tasks: Task) -> np.ndarray:
        """Return the controls of all rows."""
        return np.asarray(self._steer(raw, action, tasks))

    def _one_step(self) -> tuple[Task, Key, Step, np.ndarray]:
        (task, key, action), family = self.one(), self.family
        simulator = family.simulate([task])
        fresh = simulator.prepare(np.asarray(family.fresh(key, task))[None])
        before = simulator.begin(fresh)
        control = np.asarray(family.steer(jnp.asarray(before[0]), action, task))
        after = simulator.advance(control[None], fresh)
        now, then, new = (jnp.asarray(it[0]) for it in (before, after, fresh))
        return task, key, Step(now, action, then, new, jnp.ones(())), np.stack([before, after])

    def pieces(self) -> Pieces:
        """Return fresh, view, steer and read."""
        (task, key, step, _), family = self._one_step(), self.family
        return {
            "fresh": (family.fresh, (key, task)),
            "view": (family.view, (step.before, task)),
            "steer": (family.steer, (step.before, step.action, task)),
            "read": (family.read, (step, task)),
        }

    def shapes(self) -> str | None:
        """Say what is not as declared."""
        (task, _, step, said), family = self._one_step(), self.family
        control, reading = family.steer(step.before, step.action, task), family.read(step, task)
        if jnp.ndim(control) != 1:
            return f"steer must give a vector, not {named(control)}"
        seen = jnp.float32, (family.spaces.observation,)
        return unlike(
            {
                "what the simulator says": (said, jnp.float32, (2, 1, family.width)),
                "view": (family.view(step.before, task), *seen),
                "read's next_observation": (reading.next_observation, *seen),
                "read's reward": (reading.reward, jnp.float32, ()),
                "read's raw": (reading.raw, jnp.float32, (family.width,)),
                **{
                    f"read's {name}": (getattr(reading, name), jnp.bool_, ())
                    for name in ("terminated", "truncated", "exploded", "restart")
                },
            }
        )

    def simulator(self, tasks: Task, rows: int) -> Simulator:
        """Build a simulator of a batch of tasks."""
        return self.family.simulate(unstack(tasks, rows))

    def draw(self, rows: Rows, number: int) -> np.ndarray:
        """Draw where episodes begin, [number, S, F], without what only a simulator knows."""
        return np.asarray(self._fresh(rows.keys, rows.tasks, number=number))

    def rollout(self, rows: Rows) -> Trace:
        """Simulate all rows, as the host driver does."""
        steps, number = rows.actions.shape[:2]
        simulator = self.simulator(rows.tasks, number)
        fresh = simulator.prepare(self.draw(rows, steps + 1))
        raw, age, seen = simulator.begin(fresh[0]), np.zeros(number, np.float32), []
        for action, new in zip(np.asarray(rows.actions), fresh[1:], strict=True):
            after = simulator.advance(self.steer(raw, action, rows.tasks), new)
            age = age + np.float32(1.0)
            step: Any = (raw, action, after, new, age)
            reading = jax.tree.map(np.asarray, self._read(Step(*step), rows.tasks))
            seen.append((reading.next_observation, reading.reward, reading.terminated, reading.exploded, after.copy()))
            raw, age = reading.raw, np.where(reading.terminated | reading.truncated, np.float32(0.0), age)
            if reading.restart.any():
                simulator.restart(reading.restart, new)
        return Trace(*(np.stack(part) for part in zip(*seen, strict=True)))


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any]:
    return jnp.shape(leaf), jnp.result_type(leaf)


def named(value: Any) -> str:
    """Return dtype and shape, or what kind of thing it is."""
    return f"{jnp.result_type(value)}{list(jnp.shape(value))}" if hasattr(value, "dtype") else type(value).__name__


def unlike(expected: Mapping[str, tuple[Any, Any, tuple[int, ...]]]) -> str | None:
    """Say which of the values has not the dtype and shape beside it."""
    for what, (value, dtype, shape) in expected.items():
        if not hasattr(value, "dtype") or value.dtype != dtype or value.shape != shape:
            return f"{what} must be {jnp.dtype(dtype).name}{list(shape)}, not {named(value)}"
    return None


def close(one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Whether two trees differ by rounding errors only."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True) for a, b in pairs)
