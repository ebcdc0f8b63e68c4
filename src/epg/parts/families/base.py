"""Families: distributions over tasks. What all of them say of themselves, and the two ways to simulate them.

A `JaxFamily` is simulated inside the compiled lifetime. A `HostFamily` is simulated outside it, in batches
(MuJoCo, Gymnasium): the compiled part of a step reads what its simulator says.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.words.keys import Key
from epg.words.settings import Spaces

Task = Any  # a pytree of numbers
State = Any  # a pytree of arrays


def unstack(tasks: Task, number: int) -> list[Task]:
    """Return each task of a batch as plain numbers."""
    plain = jax.tree.map(np.asarray, tasks)
    return [jax.tree.map(lambda leaf: leaf[row], plain) for row in range(number)]  # noqa: B023


def no_features(task: Task) -> Array:
    """Return the empty vector: the family tells a loss nothing about its task."""
    return jnp.zeros(0)


class Turns(NamedTuple):
    """Turns that leave a body as it is, so that one way to move serves all of them.

    A body that sees o and does a at some place on the orbit is, with its limbs named anew, one that sees
    `observation(o)` and does `action(a)` at the place 1 / number before it. Both maps are linear. A quaternion's may be
    right up to its sign, which an observation leaves open.
    """

    number: int  # of them in the whole orbit
    observation: Callable[[Array], Array]  # [O] -> [O]
    action: Callable[[Array], Array]  # [A] -> [A]


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
    """Steps after which an episode is cut by the time limit."""
    sample: Callable[[Key], Task]
    """Draw a task."""
    features: Callable[[Task], Array] = no_features
    """Return what a loss may know of the task, [F]."""
    orbit: Callable[[Task, Array], Task] | None = None
    """Move a task by a share in [0, 1) along a closed path that leaves the distribution of tasks unchanged.

    Evolution spreads the common tasks of an epoch evenly over it (all directions, both signs), so that a loss
    that merely favours one direction gains nothing.
    """
    place: Callable[[Task], Array] | None = None
    """Return where on its orbit a task stands, in [0, 1): tasks at the same place ask for the same behaviour."""
    turns: Turns | None = None
    """What the body looks like to itself when it is turned along the orbit, if it is symmetric."""
    specification: str = ""
    """Observation, action, reward, episodes and tasks, for `epg tasks NAME`."""


@dataclass(frozen=True, kw_only=True)
class JaxFamily(Family):
    """A family whose tasks are simulated inside the compiled lifetime."""

    reset: Callable[[Key, Task], State]
    """Draw the first state of an episode."""
    observe: Callable[[State, Task], Array]
    """Return the observation [O]."""
    step: Callable[[State, Array, Task], tuple[State, Array, Array]]
    """Apply an action as the policy emitted it (clip it here): next state, reward, terminated."""


class Step(NamedTuple):
    """One step of a simulator, unbatched."""

    before: Array  # [W] what it said before the action
    action: Array  # [A] as the policy emitted it, or a whole number
    after: Array  # [W] what it says now
    fresh: Array  # [F] where the next episode begins, if this one is over
    age: Array  # steps since the last reset, this one included


class Reading(NamedTuple):
    """What one step of a simulator means, unbatched."""

    next_observation: Array  # [O] before any reset
    reward: Array
    terminated: Array  # bool
    truncated: Array  # bool, never with terminated
    exploded: Array  # bool: the simulator failed, which ended the episode
    restart: Array  # bool: the next step begins at the fresh state
    raw: Array  # [W] what the simulator says now, after any restart


class Simulator(Protocol):
    """A batch of running tasks outside JAX, one per row."""

    def prepare(self, fresh: np.ndarray) -> np.ndarray:
        """Add to drawn first states [..., rows, F] what only the simulator knows of them (sensors)."""
        ...

    def begin(self, fresh: np.ndarray) -> np.ndarray:
        """Begin an episode in every row and return what is seen, float32 [rows, W]."""
        ...

    def advance(self, control: np.ndarray, fresh: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Apply controls [rows, C] and return what is seen, float32 [rows, W], all of it finite.

        Only `rows` move (None: all); what is returned of the others is not looked at. `fresh` is for simulators
        that go on to the next episode by themselves.
        """
        ...

    def repeat(self, times: int) -> "Simulator":
        """Return a simulator with each of these rows `times` times in a row, none of them begun."""
        ...

    def restart(self, ended: np.ndarray, fresh: np.ndarray) -> None:
        """Go on from `fresh` where the mask `ended` says that the reading ended the episode."""
        ...


@dataclass(frozen=True, kw_only=True)
class HostFamily(Family):
    """A family simulated outside JAX. Its pure functions, unbatched, are compiled into the step around it."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Return W, the length of what its simulator says."""

    @abstractmethod
    def simulate(self, tasks: Sequence[Task]) -> Simulator:
        """Build a simulator with one row per task."""

    @abstractmethod
    def fresh(self, key: Key, task: Task) -> Array:
        """Draw the first state of an episode, [F]."""

    @abstractmethod
    def view(self, raw: Array, task: Task) -> Array:
        """Return the observation [O] in what a simulator says."""

    @abstractmethod
    def steer(self, raw: Array, action: Array, task: Task) -> Array:
        """Turn an action as the policy emitted it into the simulator's control, [C]."""

    @abstractmethod
    def read(self, step: Step, task: Task) -> Reading:
        """Interpret one step."""
