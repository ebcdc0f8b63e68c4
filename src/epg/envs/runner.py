"""Rows of tasks, NumPy in and out: what a family's environments run on. The steps are those of lifetimes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.errors import BadInput
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
"""float32 [rows, O + 4]: the observation, then reward, terminated, truncated, diverged."""


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
    """Rows of MuJoCo's C physics, each with a task and an episode of its own."""

    def __init__(self, programs: "Programs", rows: int) -> None:
        self.programs, self.stepper, self.tasks = programs, programs.stepper, [None] * rows
        self._nobody = Actor((), jnp.zeros((rows, 1)), jnp.ones((rows, 1)))
        self._keys, self._rows = jax.random.split(jax.random.key(0), rows), np.arange(rows)
        self._drawn = self.packed = np.zeros((rows, 0), np.float32)
        columns = self.stepper.packing.columns
        self._numbers = np.concatenate([np.arange(columns[name].start, columns[name].stop) for name in RETURNED])

    def begin(self, rows: Sequence[int], tasks: Sequence[Task], seeds: Sequence[int]) -> np.ndarray:
        """Begin episodes in these rows, in all of them at first, and return their first observations."""
        self._take(rows, tasks)
        drawn = [self.programs.initial_state(np.uint32(seed), task) for seed, task in zip(seeds, tasks, strict=True)]
        return self.begin_at(rows, np.stack([np.asarray(state) for state in drawn]))

    def _take(self, rows: Sequence[int], tasks: Sequence[Task]) -> None:
        """Give rows their tasks; a row whose task stays the same keeps its model."""
        known = self.tasks[rows[0]] is not None
        new = [(row, it) for row, it in zip(rows, tasks, strict=True) if not known or not _equal(it, self.tasks[row])]
        if not new:
            return
        models = self.programs.models([task for _, task in new])
        if not known:
            self.simulator = self.programs.simulator(models)
        for (row, task), model in zip(new, models, strict=True):
            self.tasks[row] = task
            if known:
                self.simulator.replace(row, model)
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *self.tasks)
        self.batch = Batch(self.simulator, jax.device_put(stacked), self._keys)

    def begin_at(self, rows: Sequence[int], states: np.ndarray) -> np.ndarray:
        """Begin episodes at these first states."""
        mask = np.isin(self._rows, rows)
        first = len(rows) == len(self._rows)
        self._drawn = states if first else _with_rows(self._drawn, rows, states)
        self.states = self.simulator.prepare(self._drawn)
        begun = self.stepper.programs.begin(self.batch.tasks, self.simulator.begin(self.states, mask))
        self.packed = np.asarray(begun) if first else np.where(mask[:, None], begun, self.packed)
        return np.array(self.stepper.packing.column(self.packed, "observation")[list(rows)])

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> StepNumbers:
        """Simulate one step of these rows, by default of all; what is returned of the others means nothing."""
        draws = Draws(actions[None], self.states[None])
        # Without resets: an episode that has ended is begun anew by its user.
        alive = self._rows if rows is None else rows
        loop = self.stepper.steps(self.batch, self._nobody, self.packed, draws, alive=alive)
        next(loop)
        self.packed = next(loop)
        return self.packed[:, self._numbers]

    def positions(self, row: int = 0) -> np.ndarray:
        """Return the model's generalized positions."""
        assert isinstance(self.programs.family, MujocoFamily)
        return np.asarray(self.simulator.state[row, 1 : 1 + self.programs.family.sizes.qpos])


class JaxRunner:
    """Rows of a family simulated inside JAX."""

    def __init__(self, programs: "Programs", rows: int) -> None:
        self.programs, self.tasks, self.state = programs, [None] * rows, None

    def begin(self, rows: Sequence[int], tasks: Sequence[Task], seeds: Sequence[int]) -> np.ndarray:
        """Begin episodes in these rows, in all of them at first, and return their first observations."""
        begun = [self.programs.begin(np.uint32(seed), task) for seed, task in zip(seeds, tasks, strict=True)]
        for row, task in zip(rows, tasks, strict=True):
            self.tasks[row] = task
        state, observations = jax.tree.map(lambda *leaves: np.stack(leaves), *begun)
        whole = self.state is None
        self.state = state if whole else jax.tree.map(lambda a, b: _with_rows(a, rows, b), self.state, state)
        self._stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *self.tasks)
        return np.asarray(observations)

    def step(self, actions: np.ndarray, rows: np.ndarray | None = None) -> StepNumbers:
        """Simulate one step of all rows; numbers that are not finite end an episode at the state before."""
        self.state, numbers = self.programs.step(self.state, actions, self._stacked)
        return np.array(numbers)


class Programs:
    """What is compiled of a family, once for all environments of it."""

    def __init__(self, family: Family) -> None:
        self.family = replace(family, horizon=NO_LIMIT)
        self.tasks = Tasks(self.family)
        if isinstance(self.family, JaxFamily):
            self.begin, self.step = jit(self._begin), jit(jax.vmap(self._step))
            return
        if not isinstance(self.family, MujocoFamily):
            raise BadInput(f"{family.name} is made of environments: call its factory instead.")
        self.stepper = GivenActions(self.family)
        self.initial_state = jit(lambda seed, task: self.family.initial_state(jax.random.key(seed), task))
        self._stock: tuple[Any, Any] | None = None

    def runner(self, rows: int = 1) -> HostRunner | JaxRunner:
        """Return something that runs one episode after the other in each row."""
        return JaxRunner(self, rows) if isinstance(self.family, JaxFamily) else HostRunner(self, rows)

    def models(self, tasks: Sequence[Task]) -> list[Any]:
        """Build a model per task; the model's file is parsed only once."""
        from epg.simulators.mujoco import build_model, compile_spec, load_spec

        family: Any = self.family
        if self._stock is None:
            spec = load_spec(family)
            self._stock = spec, compile_spec(spec)
        same = family.edit is None and family.scale is None  # all tasks have the same model
        return [self._stock[1] if same else build_model(family, *self._stock, task) for task in tasks]

    def simulator(self, models: list[Any]) -> Any:
        """Return a simulator with a row per model."""
        from epg.simulators.mujoco import MujocoSimulator

        return MujocoSimulator(self.family, models)  # type: ignore[arg-type]

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


def _with_rows(whole: np.ndarray, rows: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Return a copy with other values in some rows."""
    changed = np.array(whole)
    changed[list(rows)] = values
    return changed


def _equal(task: Task, other: Task) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(task), jax.tree.leaves(other), strict=True))
