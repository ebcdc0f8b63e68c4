"""One task at a time, NumPy in and out: what a family's environment runs on. The functions are those of lifetimes."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.parts.families import load_family
from epg.parts.families.base import Family, HostFamily, JaxFamily, Simulator, State, Step, Task
from epg.parts.families.mujoco_family import MujocoFamily, clip_to_unit
from epg.words.runtime import COMPILER
from epg.words.settings import require

Said = np.ndarray
"""float32 [O + 4]: the observation, then reward, terminated, truncated, exploded."""


class Tasks:
    """The tasks of a family, as records and as plain numbers."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.template = jax.eval_shape(family.sample, jax.random.key(0))
        self._sample = jax.jit(lambda seed: family.sample(jax.random.key(seed)), compiler_options=COMPILER)

    def draw(self, seed: int) -> Task:
        """Draw the task of a seed."""
        return jax.tree.map(np.asarray, self._sample(np.uint32(seed)))

    def tell(self, task: Task) -> Any:
        """Return a task as a dict of numbers, if it has names for them."""
        task = jax.tree.map(np.array, task)
        return task._asdict() if hasattr(task, "_asdict") else task

    def understand(self, said: Any) -> Task:
        """Turn a record or a dict of numbers into a task; ValueError says what is wrong with it."""
        name, fields = self.family.name, getattr(self.template, "_fields", ())
        if fields and isinstance(said, dict):
            if set(said) != set(fields):
                raise ValueError(
                    f"a task of {name} consists of {', '.join(fields)}, not of {', '.join(map(str, said))}."
                )
            said = type(self.template)(**said)
        try:  # what is a leaf of the template may be a list in `said`
            task = jax.tree.map(lambda like, it: np.asarray(it, like.dtype), self.template, said)
        except (ValueError, TypeError):
            raise ValueError(f"a task of {name} is a record of numbers like {self.tell(self.draw(0))}.") from None
        for like, leaf in zip(jax.tree.leaves(self.template), jax.tree.leaves(task), strict=True):
            if leaf.shape != like.shape or not np.isfinite(leaf).all():
                raise ValueError(f"a task of {name} has finite numbers, as many as {self.tell(self.draw(0))}.")
        return task


def clip(raw: np.ndarray, action: np.ndarray, task: Task) -> np.ndarray:
    """Steer as MuJoCo families do by default, in a tenth of the time of a compiled call."""
    return np.clip(action, -1.0, 1.0)


class HostPrograms:
    """What is compiled of a family that is simulated outside JAX."""

    def __init__(self, family: HostFamily) -> None:
        self.family, self.tasks = family, Tasks(family)
        self.fresh = jax.jit(lambda seed, task: family.fresh(jax.random.key(seed), task), compiler_options=COMPILER)
        self.view = jax.jit(family.view, compiler_options=COMPILER)
        plain = isinstance(family, MujocoFamily) and family.steer_with is clip_to_unit
        self.steer: Any = clip if plain else jax.jit(family.steer, compiler_options=COMPILER)
        self.read = jax.jit(self._read, compiler_options=COMPILER)
        self._stock: tuple[Any, Any] | None = None

    def _read(self, before: Array, action: Array, after: Array, fresh: Array, task: Task) -> Array:
        """Read a step as if the episode had just begun: who holds the environment counts its steps."""
        reading = self.family.read(Step(before, action, after, fresh, jnp.zeros(())), task)
        numbers = (reading.reward, reading.terminated, reading.truncated, reading.exploded)
        return jnp.concatenate([reading.next_observation, jnp.stack([it.astype(jnp.float32) for it in numbers])])

    def simulate(self, task: Task) -> Simulator:
        """Build a simulator of one row; a MuJoCo model's file is parsed only once."""
        if not isinstance(self.family, MujocoFamily):
            return self.family.simulate([task])
        from epg.parts.physics import MujocoSimulator, build_model, compile_spec, load_spec

        if self._stock is None:
            spec = load_spec(self.family)
            self._stock = spec, compile_spec(spec)
        model = self._stock[1] if self.one_model else build_model(self.family, *self._stock, task)
        return MujocoSimulator(self.family, [model])

    @property
    def one_model(self) -> bool:
        """Whether all tasks are simulated by the same model."""
        return isinstance(self.family, MujocoFamily) and self.family.edit is None and self.family.scale is None

    def runner(self) -> "HostRunner":
        """Return something that runs one episode after the other."""
        return HostRunner(self)


class HostRunner:
    """One row of a simulator."""

    def __init__(self, programs: HostPrograms) -> None:
        self.programs, self.task = programs, None

    def begin(self, task: Task, seed: int) -> np.ndarray:
        """Begin an episode and return its first observation."""
        if self.task is None or not (self.programs.one_model or _alike(task, self.task)):
            self.simulator = self.programs.simulate(task)
        self.task = task
        return self.begin_at(np.asarray(self.programs.fresh(np.uint32(seed), task)))

    def begin_at(self, fresh: np.ndarray) -> np.ndarray:
        """Begin an episode at this first state."""
        self.fresh = self.simulator.prepare(fresh[None])
        self.raw = self.simulator.begin(self.fresh)[0]
        return np.array(self.programs.view(self.raw, self.task))

    def step(self, action: np.ndarray) -> Said:
        """Simulate one step."""
        control = np.asarray(self.programs.steer(self.raw, action, self.task))
        before, self.raw = self.raw, self.simulator.advance(control[None], self.fresh)[0]
        return np.array(self.programs.read(before, action, self.raw, self.fresh[0], self.task))

    def positions(self) -> np.ndarray:
        """Return the model's generalised positions."""
        assert isinstance(self.programs.family, MujocoFamily)
        return self.raw[: self.programs.family.sizes.qpos]


class JaxPrograms:
    """What is compiled of a family written in JAX."""

    def __init__(self, family: JaxFamily) -> None:
        self.family, self.tasks = family, Tasks(family)
        self.reset = jax.jit(self._reset, compiler_options=COMPILER)
        self.step = jax.jit(self._step, compiler_options=COMPILER)

    def _reset(self, seed: Array, task: Task) -> tuple[State, Array]:
        state = self.family.reset(jax.random.key(seed), task)
        return state, self.family.observe(state, task)

    def _step(self, state: State, action: Array, task: Task) -> tuple[State, Array]:
        """Apply an action; numbers that are not finite end the episode where it stood."""
        after, reward, terminated = self.family.step(state, action, task)
        seen = self.family.observe(after, task)
        sound = jnp.all(jnp.isfinite(seen)) & jnp.isfinite(reward) & jnp.all(jnp.isfinite(action))
        after = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, state)
        numbers = (jnp.where(sound, reward, 0.0), terminated | ~sound, jnp.array(False), ~sound)
        said = (self.family.observe(after, task), jnp.stack([it.astype(jnp.float32) for it in numbers]))
        return after, jnp.concatenate(said)

    def runner(self) -> "JaxRunner":
        """Return something that runs one episode after the other."""
        return JaxRunner(self)


class JaxRunner:
    """One state."""

    def __init__(self, programs: JaxPrograms) -> None:
        self.programs = programs

    def begin(self, task: Task, seed: int) -> np.ndarray:
        """Begin an episode and return its first observation."""
        self.task = task
        self.state, seen = self.programs.reset(np.uint32(seed), task)
        return np.array(seen)

    def step(self, action: np.ndarray) -> Said:
        """Simulate one step."""
        self.state, said = self.programs.step(self.state, action, self.task)
        return np.array(said)


@cache
def programs_of(name: str) -> HostPrograms | JaxPrograms:
    """Return the programs of the family of this name, compiled once for all environments of it."""
    family = load_family(name)
    require(isinstance(family, Family), f"{name!r} must be a family, not {type(family).__name__}.")
    return HostPrograms(family) if isinstance(family, HostFamily) else JaxPrograms(family)


def _alike(task: Task, other: Task) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(task), jax.tree.leaves(other), strict=True))
