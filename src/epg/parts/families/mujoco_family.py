"""A MuJoCo family: a model file, a task written into it, and a few pure functions of its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
from jax import Array

from epg.parts.families.base import HostFamily, Reading, Simulator, Step, Task
from epg.words.keys import Key


class Body(NamedTuple):
    """The state of a model after one control interval, unbatched."""

    qpos: Array  # [nq] generalised positions
    qvel: Array  # [nv] generalised velocities
    speed: Array  # [nq] mean change of qpos per second over the control interval; zero after a reset
    sensors: Array  # [ns] sensor readings, one substep old; exact after a reset


class Sizes(NamedTuple):
    """Lengths of a model's vectors."""

    qpos: int
    qvel: int
    sensors: int


@dataclass(frozen=True)
class Clock:
    """How the control interval is cut into substeps."""

    timestep: float
    """Seconds per substep."""
    substeps: int
    """Substeps per action."""
    integrator: str = "implicitfast"
    """MuJoCo's name of the integrator, in lower case."""
    alone: bool = False
    """Whether each lifetime is stepped alone, its solver starting from its last solution, as in a single simulation."""


def clip_to_unit(body: Body, action: Array, task: Task) -> Array:
    """Clip every component to [-1, 1], the range of the stock models' motors."""
    return jnp.clip(action, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class MujocoFamily(HostFamily):
    """A family simulated by MuJoCo's C engine, many lifetimes at a time."""

    model: str
    """Path of an MJCF file; `gymnasium:NAME.xml` is one of Gymnasium's."""
    fast: Clock
    """The clock that lifetimes run with."""
    stock: Clock
    """The clock of the environment this family derives from, for `@reference`."""
    reset: Callable[[Key, Task], tuple[Array, Array]]
    """Draw qpos and qvel at the start of an episode."""
    observe: Callable[[Body, Task], Array]
    """Return the observation [O]."""
    judge: Callable[[Body, Array, Task], tuple[Array, Array]]
    """Return reward and whether the task ended the episode, after an action as the policy emitted it."""
    steer_with: Callable[[Body, Array, Task], Array] = clip_to_unit
    """Return the model's controls, then positions [3] and then quaternions [4] of its mocap bodies if it has any."""
    adapt: Callable[[Any], None] | None = None
    """Change the `MjSpec` of the file, before any task: what the file lacks."""
    edit: Callable[[Any, Task], None] | None = None
    """Write the task into an `MjSpec` before it is compiled: geometry, options."""
    scale: Callable[[Any, Any, Task], None] | None = None
    """Write the task into the compiled `MjModel`, given the stock one too; constants that follow are recomputed."""
    stock_task: Task = None
    """The task in which the model is as its file has it."""
    resets: bool = True
    """Whether an episode's end puts the model back; without it only `terminated` does."""

    @property
    def reference(self) -> Self:
        """Return the family with the stock integrator and time step."""
        return replace(self, name=f"{self.name}@reference", fast=self.stock)

    @cached_property
    def sizes(self) -> Sizes:
        """Return the lengths of the model's vectors."""
        from epg.parts.physics import sizes_of

        return sizes_of(self)

    @property
    def width(self) -> int:
        """Return the length of a Body, and one for whether the physics is sound."""
        nq, nv, ns = self.sizes
        return 2 * nq + nv + ns + 1

    def body(self, raw: Array) -> Body:
        """Name the parts of what the simulator says."""
        nq, nv, ns = self.sizes
        return Body(raw[:nq], raw[nq : nq + nv], raw[nq + nv : 2 * nq + nv], raw[2 * nq + nv : 2 * nq + nv + ns])

    def simulate(self, tasks: Sequence[Task]) -> Simulator:
        """Build one model per distinct task."""
        from epg.parts.physics import MujocoSimulator, build_models

        return MujocoSimulator(self, build_models(self, tasks))

    def fresh(self, key: Key, task: Task) -> Array:
        """Draw qpos and qvel, side by side."""
        return jnp.concatenate(self.reset(key, task))

    def view(self, raw: Array, task: Task) -> Array:
        """Return the observation."""
        return self.observe(self.body(raw), task)

    def steer(self, raw: Array, action: Array, task: Task) -> Array:
        """Return the controls; those that are not finite are an explosion."""
        control = self.steer_with(self.body(raw), action, task)
        return jnp.where(jnp.isfinite(control), control, jnp.nan)

    def read(self, step: Step, task: Task) -> Reading:
        """Judge a step. Physics or actions that are not finite end the episode with reward zero, where it stood."""
        exploded = (step.after[-1] == 0.0) | ~jnp.all(jnp.isfinite(step.action))
        after = jnp.where(exploded, step.before, step.after)
        reward, terminated = self.judge(self.body(after), step.action, task)
        terminated = terminated | exploded
        truncated = (step.age >= self.horizon) & ~terminated
        restart = terminated | (truncated & self.resets)
        return Reading(
            next_observation=self.view(after, task),
            reward=jnp.where(exploded, 0.0, reward),
            terminated=terminated,
            truncated=truncated,
            exploded=exploded,
            restart=restart,
            raw=jnp.where(restart, self._begin(step.fresh), after),
        )

    def _begin(self, fresh: Array) -> Array:
        nq, nv, _ = self.sizes
        pose, sensed = fresh[: nq + nv], fresh[nq + nv :]
        return jnp.concatenate([pose, jnp.zeros(nq), sensed, jnp.ones(1)])
