"""Rollouts for the family checker: given tasks, keys and actions, through the drivers' own stepping loops."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.core.runtime import jit
from epg.families.base import Family, HostFamily, JaxFamily, SimStep, Task
from epg.lifetime import scan_driver
from epg.lifetime.env_step import Actor, initial_env_state
from epg.lifetime.host_stepper import Draws, HostStepper
from epg.policies.distributions import draw_noise
from epg.policies.open_loop import OpenLoopPolicy

STEPS, SHORT = 200, 10
"""Length of a rollout, and of one that is too short for rounding errors to grow."""
ROWS = 3
"""Rows of a rollout. All rollouts have the same shapes: compiling is most of the time a check takes."""


class RolloutRecord(NamedTuple):
    """What S rows did in T steps."""

    observation: np.ndarray  # [T, S, O] before any reset
    reward: np.ndarray  # [T, S]
    terminated: np.ndarray  # [T, S]
    diverged: np.ndarray  # [T, S]

    def row(self, index: int) -> "RolloutRecord":
        """Return one row, as the only one."""
        return RolloutRecord(*(part[:, index : index + 1] for part in self))

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        return all(np.isfinite(part).all() for part in self)

    def equals(self, other: "RolloutRecord") -> bool:
        """Whether every bit is the same; one NaN equals another."""
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self, other, strict=True))

    def is_close(self, other: "RolloutRecord") -> bool:
        """Whether they differ by rounding errors only."""
        return close(tuple(self), tuple(other))


class Rows(NamedTuple):
    """What a rollout begins with."""

    tasks: Task  # leaves [S, ...]
    keys: Key  # [S] decide where episodes begin
    actions: Array  # [T, S, A], or [T, S] integers

    def row(self, index: int) -> "Rows":
        """Return one row, as the only one."""
        tasks = jax.tree.map(lambda leaf: leaf[index : index + 1], self.tasks)
        return Rows(tasks, self.keys[index : index + 1], self.actions[:, index : index + 1])


Functions = Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]
"""The pure functions of a family, each with arguments to try it on."""


@dataclass(frozen=True)
class Tester(ABC):
    """A family, and what is drawn to try it out."""

    family: Family

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

        return jit(draw, static_argnames=("steps", "number"))

    def one(self) -> tuple[Task, Key, Array]:
        """Draw a task, a key and an action."""
        rows = self.rows(steps=SHORT)
        return self.family.sample(jax.random.key(0)), rows.keys[0], rows.actions[0, 0]

    def _initial_states(self, keys: Key, tasks: Task, number: int) -> Array:
        def many(key: Key, task: Task) -> Array:
            return jax.vmap(self.family.initial_state, (0, None))(jax.random.split(key, number), task)

        return jax.vmap(many, (0, 0), 1)(keys, tasks)

    @abstractmethod
    def functions(self) -> Functions:
        """Return the family's functions with arguments."""

    @abstractmethod
    def shape_problem(self) -> str | None:
        """Say which result has not the declared shape."""

    @abstractmethod
    def rollout(self, rows: Rows) -> RolloutRecord:
        """Simulate all rows."""


@dataclass(frozen=True)
class JaxTester(Tester):
    """Tries a family simulated inside JAX."""

    family: JaxFamily

    def functions(self) -> Functions:
        """Return reset, observe and step."""
        (task, key, action), family = self.one(), self.family
        state = family.reset(key, task)
        return {
            "reset": (family.reset, (key, task)),
            "observe": (family.observe, (state, task)),
            "step": (family.step, (state, action, task)),
        }

    def shape_problem(self) -> str | None:
        """Say which result has not the declared shape."""
        (task, key, action), family = self.one(), self.family
        state = family.reset(key, task)
        after, reward, terminated = family.step(state, action, task)
        if jax.tree.map(_kind, after) != jax.tree.map(_kind, state):
            return "step must return a state of the same structure, shapes and dtypes as reset"
        return mismatch(
            {
                "observe": (family.observe(state, task), jnp.float32, (family.spaces.observation,)),
                "step's reward": (reward, jnp.float32, ()),
                "step's terminated": (terminated, jnp.bool_, ()),
            }
        )

    def rollout(self, rows: Rows) -> RolloutRecord:
        """Simulate all rows; functions are traced again each time, so that impure ones show."""
        policy, family, nobody = OpenLoopPolicy(), self.family, Actor((), jnp.zeros(()), jnp.ones(()))
        steps = len(rows.actions)
        states = self._initial_states(rows.keys, rows.tasks, steps + 1)

        def one(task: Task, states: Any, actions: Array) -> Any:
            first = jax.tree.map(lambda leaf: leaf[0], states)
            env = initial_env_state(policy, family, task, family.initial_readout(first))
            draws = scan_driver.Draws(actions, jax.tree.map(lambda leaf: leaf[1:], states))
            taken, after = scan_driver.rollout(policy, family, task, nobody, env, draws)[1]
            return taken.next_observation, after.reward, after.terminated, after.diverged

        found = jit(jax.vmap(one, (0, 1, 1), 1))(rows.tasks, states, rows.actions)
        return RolloutRecord(*(np.asarray(part) for part in found))


@dataclass(frozen=True)
class HostTester(Tester):
    """Tries a family simulated outside JAX."""

    family: HostFamily

    @cached_property
    def stepper(self) -> HostStepper:
        """Return the stepping loop with given actions."""
        return HostStepper(OpenLoopPolicy(), self.family)

    @cached_property
    def _states(self) -> Callable[..., Array]:
        return jit(self._initial_states, static_argnames="number")

    def initial_states(self, rows: Rows, number: int) -> np.ndarray:
        """Draw where episodes begin, [number, S, F], without what only a simulator knows."""
        return np.asarray(self._states(rows.keys, rows.tasks, number=number))

    def _one_step(self) -> tuple[Task, Key, SimStep, np.ndarray]:
        (task, key, action), family = self.one(), self.family
        simulator = family.simulate([task])
        states = simulator.prepare(np.asarray(family.initial_state(key, task))[None])
        before = simulator.begin(states)
        ctrl = np.asarray(family.to_ctrl(jnp.asarray(before[0]), action, task))
        after = simulator.advance(ctrl[None], states)
        now, then, reset_state = (jnp.asarray(it[0]) for it in (before, after, states))
        return task, key, SimStep(now, action, then, reset_state, jnp.ones(())), np.stack([before, after])

    def functions(self) -> Functions:
        """Return initial_state, observation, to_ctrl and step_result."""
        (task, key, step, _), family = self._one_step(), self.family
        return {
            "initial_state": (family.initial_state, (key, task)),
            "observation": (family.observation, (step.before, task)),
            "to_ctrl": (family.to_ctrl, (step.before, step.action, task)),
            "step_result": (family.step_result, (step, task)),
        }

    def shape_problem(self) -> str | None:
        """Say which result has not the declared shape."""
        (task, _, step, readouts), family = self._one_step(), self.family
        ctrl, result = family.to_ctrl(step.before, step.action, task), family.step_result(step, task)
        if jnp.ndim(ctrl) != 1:
            return f"to_ctrl must give a vector, not {describe(ctrl)}"
        seen = jnp.float32, (family.spaces.observation,)
        return mismatch(
            {
                "the simulator's readout": (readouts, jnp.float32, (2, 1, family.readout_size)),
                "observation": (family.observation(step.before, task), *seen),
                "step_result's next_observation": (result.next_observation, *seen),
                "step_result's reward": (result.reward, jnp.float32, ()),
                "step_result's readout": (result.readout, jnp.float32, (family.readout_size,)),
                **{
                    f"step_result's {name}": (getattr(result, name), jnp.bool_, ())
                    for name in ("terminated", "truncated", "diverged", "reset")
                },
            }
        )

    def rollout(self, rows: Rows) -> RolloutRecord:
        """Simulate all rows with the host driver's loop."""
        steps, number = rows.actions.shape[:2]
        batch = self.stepper.batch(rows.keys, rows.tasks)
        states = batch.simulator.prepare(self.initial_states(rows, steps + 1))
        nobody = Actor((), jnp.zeros((number, 1)), jnp.ones((number, 1)))
        draws, packed = Draws(rows.actions, states[1:]), self.stepper.begin(batch, states[0])
        found = np.stack([seen.copy() for seen in self.stepper.steps(batch, nobody, packed, draws)][1:])
        column = partial(self.stepper.packing.column, found)
        return RolloutRecord(
            column("next_observation"), column("reward"), column("terminated") > 0, column("diverged") > 0
        )


def make_tester(family: Any) -> Tester:
    """Return the tester that fits a family."""
    return HostTester(family) if isinstance(family, HostFamily) else JaxTester(family)


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any]:
    return jnp.shape(leaf), jnp.result_type(leaf)


def describe(value: Any) -> str:
    """Return dtype and shape, or the type."""
    return f"{jnp.result_type(value)}{list(jnp.shape(value))}" if hasattr(value, "dtype") else type(value).__name__


def mismatch(expected: Mapping[str, tuple[Any, Any, tuple[int, ...]]]) -> str | None:
    """Say which of the values has not the dtype and shape beside it."""
    for name, (value, dtype, shape) in expected.items():
        if not hasattr(value, "dtype") or value.dtype != dtype or value.shape != shape:
            return f"{name} must be {jnp.dtype(dtype).name}{list(shape)}, not {describe(value)}"
    return None


def close(one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Whether two trees differ by rounding errors only."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True) for a, b in pairs)
