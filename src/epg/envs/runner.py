"""One task at a time, NumPy in and out: what a family's environment runs on. The steps are those of lifetimes."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.runtime import jit
from epg.families.base import Family, HostFamily, JaxFamily, State, Task
from epg.families.mujoco.base import MujocoFamily, clip_to_unit
from epg.families.registry import find_family
from epg.lifetime import scan_driver
from epg.lifetime.env_step import Actor, initial_env_state
from epg.lifetime.host_stepper import Batch, Draws, HostStepper
from epg.policies.open_loop import OpenLoopPolicy

NO_LIMIT = 2**30
"""Horizon of a family inside an environment: the time limit is that of `gymnasium.make`."""

RETURNED = ("next_observation", "reward", "terminated", "truncated", "diverged")
StepNumbers = np.ndarray
"""float32 [O + 4]: the observation, then reward, terminated, truncated, diverged."""


class Tasks:
    """The tasks of a family, as records and as plain numbers."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.template = jax.eval_shape(family.sample, jax.random.key(0))
        self._sample = jit(lambda seed: family.sample(jax.random.key(seed)))

    def draw(self, seed: int) -> Task:
        """Draw the task of a seed."""
        return jax.tree.map(np.asarray, self._sample(np.uint32(seed)))

    def to_numbers(self, task: Task) -> Any:
        """Return a task as a dict of numbers, if it has names for them."""
        task = jax.tree.map(np.array, task)
        return task._asdict() if hasattr(task, "_asdict") else task

    def from_numbers(self, given: Any) -> Task:
        """Turn a record or a dict of numbers into a task; ValueError says what is wrong with it."""
        name, fields = self.family.name, getattr(self.template, "_fields", ())
        if fields and isinstance(given, dict):
            if set(given) != set(fields):
                raise ValueError(
                    f"a task of {name} consists of {', '.join(fields)}, not of {', '.join(map(str, given))}."
                )
            given = type(self.template)(**given)
        try:  # a leaf of the template may be a list in `given`
            task = jax.tree.map(lambda like, it: np.array(it, like.dtype), self.template, given)
        except (ValueError, TypeError):
            raise ValueError(f"a task of {name} is a record of numbers like {self.to_numbers(self.draw(0))}.") from None
        for like, leaf in zip(jax.tree.leaves(self.template), jax.tree.leaves(task), strict=True):
            if leaf.shape != like.shape or not np.isfinite(leaf).all():
                raise ValueError(f"a task of {name} has finite numbers, as many as {self.to_numbers(self.draw(0))}.")
        return task


class GivenActions(HostStepper):
    """The host driver's loop with given actions. Where the controls are the clipped action, NumPy clips it.

    The bits are those of the compiled program, in a third of its time.
    """

    def __init__(self, family: HostFamily) -> None:
        super().__init__(OpenLoopPolicy(), family)
        if isinstance(family, MujocoFamily) and family.action_to_ctrl is clip_to_unit:
            self.programs = self.programs._replace(act=self._clip)

    def _clip(self, actor: Actor, tasks: Task, packed: Array | np.ndarray, noise: np.ndarray) -> np.ndarray:
        after = np.array(packed)
        after[:, self.packing.columns["action"]] = noise
        after[:, self.packing.columns["ctrl"]] = np.clip(noise, -1.0, 1.0)
        return after


class HostRunner:
    """One row of a simulator outside JAX."""

    def __init__(self, programs: "Programs") -> None:
        self.programs, self.stepper, self.task = programs, programs.stepper, None
        self._nobody, self._keys = Actor((), jnp.zeros((1, 1)), jnp.ones((1, 1))), jax.random.key(0)[None]
        self._row = np.arange(1)
        columns = self.stepper.packing.columns
        self._numbers = np.concatenate([np.arange(columns[name].start, columns[name].stop) for name in RETURNED])

    def begin(self, task: Task, seed: int) -> np.ndarray:
        """Begin an episode and return its first observation."""
        family = self.programs.family
        if self.task is None or not _equal(task, self.task):
            if self.task is None or not _same_model(family):
                self.simulator = self.programs.simulate(task)
            self.batch = Batch(self.simulator, jax.device_put(jax.tree.map(_row, task)), self._keys)
            self.task = task
        return self.begin_at(np.asarray(self.programs.initial_state(np.uint32(seed), task)))

    def begin_at(self, state: np.ndarray) -> np.ndarray:
        """Begin an episode at this first state."""
        self.states = self.simulator.prepare(state[None])
        self.packed = np.asarray(self.stepper.begin(self.batch, self.states))
        return np.array(self.stepper.packing.column(self.packed, "observation")[0])

    def step(self, action: np.ndarray) -> StepNumbers:
        """Simulate one step."""
        draws = Draws(action[None, None], self.states[None])
        # Without resets: an environment that has ended is reset by its user.
        loop = self.stepper.steps(self.batch, self._nobody, self.packed, draws, alive=self._row)
        next(loop)
        self.packed = next(loop)
        return self.packed[0, self._numbers]

    def positions(self) -> np.ndarray:
        """Return the model's generalized positions."""
        assert isinstance(self.programs.family, MujocoFamily)
        return np.asarray(self.simulator.state[0, 1 : 1 + self.programs.family.sizes.qpos])


class JaxRunner:
    """One state of a family simulated inside JAX."""

    def __init__(self, programs: "Programs") -> None:
        self.programs = programs

    def begin(self, task: Task, seed: int) -> np.ndarray:
        """Begin an episode and return its first observation."""
        self.task = task
        self.state, observation = self.programs.begin(np.uint32(seed), task)
        return np.array(observation)

    def step(self, action: np.ndarray) -> StepNumbers:
        """Simulate one step; numbers that are not finite end the episode at the state before."""
        self.state, numbers = self.programs.step(self.state, action, self.task)
        return np.array(numbers)


class Programs:
    """What is compiled of a family, once for all environments of it."""

    def __init__(self, family: Family) -> None:
        self.family = replace(family, horizon=NO_LIMIT)
        self.tasks = Tasks(self.family)
        if isinstance(self.family, HostFamily):
            self.stepper = GivenActions(self.family)
            self.initial_state = jit(lambda seed, task: self.family.initial_state(jax.random.key(seed), task))
            self._stock: tuple[Any, Any] | None = None
        else:
            self.begin, self.step = jit(self._begin), jit(self._step)

    def runner(self) -> HostRunner | JaxRunner:
        """Return something that runs one episode after the other."""
        return HostRunner(self) if isinstance(self.family, HostFamily) else JaxRunner(self)

    def simulate(self, task: Task) -> Any:
        """Build a simulator of one row; a MuJoCo model's file is parsed only once."""
        assert isinstance(self.family, HostFamily)
        if not isinstance(self.family, MujocoFamily):
            return self.family.simulate([task])
        from epg.simulators.mujoco import MujocoSimulator, build_model, compile_spec, load_spec

        if self._stock is None:
            spec = load_spec(self.family)
            self._stock = spec, compile_spec(spec)
        model = self._stock[1] if _same_model(self.family) else build_model(self.family, *self._stock, task)
        return MujocoSimulator(self.family, [model])

    def _begin(self, seed: Array, task: Task) -> tuple[State, Array]:
        assert isinstance(self.family, JaxFamily)
        state = self.family.initial_state(jax.random.key(seed), task)
        return state, self.family.observe(state, task)

    def _step(self, state: State, action: Array, task: Task) -> tuple[State, Array]:
        """Run the scan driver's loop for one step. At an end the state before it is kept: its user resets it."""
        family, policy, nobody = self.family, OpenLoopPolicy(), Actor((), jnp.zeros(()), jnp.ones(()))
        assert isinstance(family, JaxFamily)
        env = initial_env_state(policy, family, task, family.initial_readout(state))
        draws = scan_driver.Draws(action[None], jax.tree.map(lambda leaf: leaf[None], state))
        after, (taken, _) = scan_driver.rollout(policy, family, task, nobody, env, draws)
        seen, reward, terminated = taken.next_observation[0], taken.reward[0], taken.terminated[0]
        finite = jnp.all(jnp.isfinite(seen)) & jnp.isfinite(reward) & jnp.all(jnp.isfinite(action))
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after.readout.state, state)
        last = jnp.where(finite, seen, env.observation)
        numbers = (jnp.where(finite, reward, 0.0), terminated | ~finite, jnp.array(False), ~finite)
        return kept, jnp.concatenate([last, jnp.stack([it.astype(jnp.float32) for it in numbers])])


@cache
def programs_of(name: str) -> Programs:
    """Return the programs of the family of this name."""
    return Programs(find_family(name))


def _same_model(family: Family) -> bool:
    """Tell whether all tasks are simulated by the same model."""
    return isinstance(family, MujocoFamily) and family.edit is None and family.scale is None


def _row(leaf: Any) -> np.ndarray:
    """Return a leaf of one task as a batch of one."""
    return np.asarray(leaf)[None]


def _equal(task: Task, other: Task) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(task), jax.tree.leaves(other), strict=True))
