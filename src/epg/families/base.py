"""A family: a distribution over tasks, and how its tasks are simulated.

A `JaxFamily` is simulated inside the compiled lifetime. A `HostFamily` is simulated outside it, in batches (MuJoCo,
Gymnasium); the compiled part of a step interprets what its simulator returns. Both answer the same four questions
(initial_state, observation, to_ctrl, step_result), which is all that `lifetime/env_step.py` asks.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance
from epg.simulators.base import Simulator

Task = Any  # a pytree of numbers
State = Any  # a pytree of arrays
Readout = Any  # what a simulator returns after a step: float32 [R] on the host, a JaxReadout inside JAX


def unstack(tasks: Task, number: int) -> list[Task]:
    """Return each task of a batch as NumPy numbers."""
    plain = jax.tree.map(np.asarray, tasks)
    return [jax.tree.map(lambda leaf: leaf[row], plain) for row in range(number)]  # noqa: B023


def no_features(task: Task) -> Array:
    """Return the empty vector: the loss learns nothing about the task from the family."""
    return jnp.zeros(0)


class SimStep(NamedTuple):
    """One step of a simulator, unbatched."""

    before: Readout
    action: Array  # [A] as the policy emitted it, or an integer
    after: Readout
    reset_state: State  # where the next episode begins, if this one is over
    age: Array  # steps since the last reset, this one included


class StepResult(NamedTuple):
    """What one step of a simulator means, unbatched."""

    next_observation: Array  # [O] before any reset
    reward: Array
    terminated: Array  # bool
    truncated: Array  # bool, never together with terminated
    diverged: Array  # bool: the simulation failed, which ended the episode
    reset: Array  # bool: the next step begins at the reset state
    readout: Readout  # after any reset


@dataclass(frozen=True, kw_only=True)
class Family:
    """A distribution over tasks."""

    name: str
    """The name users type."""
    version: int
    """Raised whenever the same task would behave differently."""
    summary: str
    """One line for `epg tasks`."""
    spaces: Spaces
    """Sizes of observation and action."""
    horizon: int
    """Time limit of an episode in steps."""
    resets: bool = True
    """Whether a time limit resets the state. Without it only `terminated` does: then that is a goal that was reached,
    and lifetimes are scored as they go on (Fig. 19)."""
    sample: Callable[[Key], Task]
    """Draw a task."""
    features: Callable[[Task], Array] = no_features
    """Return what a loss may know of the task, [F]."""
    orbit: Callable[[Task, Array], Task] | None = None
    """Balanced tasks, see families/symmetry.py."""
    constant_inputs: tuple[tuple[int, float, float], ...] = ()
    """Observations that are constant within a lifetime: (index, mean, std) over tasks. Running statistics of a
    constant would normalize it to zero, so these are used instead."""
    appearance: Appearance = field(default_factory=Appearance)
    """How pictures show it."""
    specification: str = ""
    """Observation, action, reward, episodes and tasks, for `epg tasks NAME`."""

    @abstractmethod
    def initial_state(self, key: Key, task: Task) -> State:
        """Draw the first state of an episode."""

    @abstractmethod
    def observation(self, readout: Readout, task: Task) -> Array:
        """Return the observation [O]."""

    @abstractmethod
    def to_ctrl(self, readout: Readout, action: Array, task: Task) -> Array:
        """Turn an action as the policy emitted it into what the simulator takes."""

    @abstractmethod
    def step_result(self, step: SimStep, task: Task) -> StepResult:
        """Interpret one step: reward, ends, and where the next one starts."""


class JaxReadout(NamedTuple):
    """What a step of a JaxFamily returns."""

    state: State
    reward: Array
    terminated: Array


@dataclass(frozen=True, kw_only=True)
class JaxFamily(Family):
    """A family whose tasks are simulated inside the compiled lifetime."""

    reset: Callable[[Key, Task], State]
    """Draw the first state of an episode."""
    observe: Callable[[State, Task], Array]
    """Return the observation [O]."""
    step: Callable[[State, Array, Task], tuple[State, Array, Array]]
    """Apply an action as the policy emitted it (clip it here): next state, reward, terminated."""

    def initial_state(self, key: Key, task: Task) -> State:
        """Draw the first state of an episode."""
        return self.reset(key, task)

    def initial_readout(self, state: State) -> JaxReadout:
        """Return a readout without reward."""
        return JaxReadout(state, jnp.zeros(()), jnp.array(False))

    def observation(self, readout: JaxReadout, task: Task) -> Array:
        """Return the observation [O]."""
        return self.observe(readout.state, task)

    def to_ctrl(self, readout: JaxReadout, action: Array, task: Task) -> Array:
        """Return the action as it is."""
        return action

    def advance(self, readout: JaxReadout, action: Array, task: Task) -> JaxReadout:
        """Simulate one step."""
        return JaxReadout(*self.step(readout.state, action, task))

    def step_result(self, step: SimStep, task: Task) -> StepResult:
        """Add the time limit, which resets unless the family says otherwise."""
        after: JaxReadout = step.after
        truncated = (step.age >= self.horizon) & ~after.terminated
        reset = after.terminated | truncated if self.resets else after.terminated
        begun = self.initial_readout(step.reset_state)
        return StepResult(
            next_observation=self.observe(after.state, task),
            reward=after.reward,
            terminated=after.terminated,
            truncated=truncated,
            diverged=jnp.array(False),
            reset=reset,
            readout=jax.tree.map(lambda a, b: jnp.where(reset, a, b), begun, after),
        )


@dataclass(frozen=True, kw_only=True)
class HostFamily(Family):
    """A family simulated outside JAX. Its pure functions, unbatched, are compiled into the step around it."""

    @property
    @abstractmethod
    def readout_size(self) -> int:
        """Return R, the length of what its simulator returns."""

    @abstractmethod
    def simulate(self, tasks: Sequence[Task]) -> Simulator:
        """Build a simulator with one row per task."""
