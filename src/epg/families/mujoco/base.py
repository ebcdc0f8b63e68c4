"""A MuJoCo family: a model file, a task written into it, and a few pure functions of its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.families.base import HostFamily, SimStep, StepResult, Task
from epg.simulators.base import Clock, Simulator, Sizes


class SimState(NamedTuple):
    """The state of a model after one control interval, unbatched."""

    qpos: Array  # [nq] generalized positions
    qvel: Array  # [nv] generalized velocities
    qpos_rate: Array  # [nq] mean change of qpos per second over the control interval; zero after a reset
    sensors: Array  # [ns] sensor readings, one substep old; exact after a reset


def clip_to_unit(state: SimState, action: Array, task: Task) -> Array:
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
    observe: Callable[[SimState, Task], Array]
    """Return the observation [O]."""
    reward_and_done: Callable[[SimState, Array, Task], tuple[Array, Array]]
    """Return the reward and whether the task ended the episode, after an action as the policy emitted it."""
    action_to_ctrl: Callable[[SimState, Array, Task], Array] = clip_to_unit
    """Return the model's controls, then positions [3] and then quaternions [4] of its mocap bodies if it has any."""
    adapt: Callable[[Any], None] | None = None
    """Change the `MjSpec` of the file, before any task: what the file lacks."""
    edit: Callable[[Any, Task], None] | None = None
    """Write the task into an `MjSpec` before it is compiled: geometry, options."""
    scale: Callable[[Any, Any, Task], None] | None = None
    """Write the task into the compiled `MjModel`, given the stock one too; dependent constants are recomputed."""
    stock_task: Task = None
    """The task in which the model is as its file has it."""

    @property
    def reference(self) -> Self:
        """Return the family with the stock integrator and time step."""
        return replace(self, name=f"{self.name}@reference", fast=self.stock)

    @cached_property
    def sizes(self) -> Sizes:
        """Return the lengths of the model's vectors."""
        from epg.simulators.mujoco import model_sizes

        return Sizes(*model_sizes(self))

    @property
    def readout_size(self) -> int:
        """Return the length of a SimState, plus one for whether the physics is valid."""
        nq, nv, ns = self.sizes
        return 2 * nq + nv + ns + 1

    def sim_state(self, readout: Array) -> SimState:
        """Name the parts of a readout."""
        nq, nv, ns = self.sizes
        qpos, qvel, rate, sensors, _ = jnp.split(readout, [nq, nq + nv, 2 * nq + nv, 2 * nq + nv + ns])
        return SimState(qpos, qvel, rate, sensors)

    def simulate(self, tasks: Sequence[Task]) -> Simulator:
        """Build one model per distinct task."""
        from epg.simulators.mujoco import MujocoSimulator, build_models

        return MujocoSimulator(self, build_models(self, tasks))

    def initial_state(self, key: Key, task: Task) -> Array:
        """Draw qpos and qvel, side by side."""
        return jnp.concatenate(self.reset(key, task))

    def initial_readout(self, state: Array) -> Array:
        """Return qpos, qvel, no velocity over the interval, sensors, valid."""
        nq, nv, _ = self.sizes
        pose, sensors = state[: nq + nv], state[nq + nv :]
        return jnp.concatenate([pose, jnp.zeros(nq), sensors, jnp.ones(1)])

    def observation(self, readout: Array, task: Task) -> Array:
        """Return the observation."""
        return self.observe(self.sim_state(readout), task)

    def to_ctrl(self, readout: Array, action: Array, task: Task) -> Array:
        """Return the controls; one that is not finite counts as divergence."""
        ctrl = self.action_to_ctrl(self.sim_state(readout), action, task)
        return jnp.where(jnp.isfinite(ctrl), ctrl, jnp.nan)

    def step_result(self, step: SimStep, task: Task) -> StepResult:
        """Interpret a step. Non-finite physics or actions end the episode with reward zero, at the state before."""
        diverged = (step.after[-1] == 0.0) | ~jnp.all(jnp.isfinite(step.action))
        after = jnp.where(diverged, step.before, step.after)
        reward, terminated = self.reward_and_done(self.sim_state(after), step.action, task)
        terminated = terminated | diverged
        truncated = (step.age >= self.horizon) & ~terminated
        reset = terminated | (truncated & self.resets)
        return StepResult(
            next_observation=self.observation(after, task),
            reward=jnp.where(diverged, 0.0, reward),
            terminated=terminated,
            truncated=truncated,
            diverged=diverged,
            reset=reset,
            readout=jnp.where(reset, self.initial_readout(step.reset_state), after),
        )
