"""The contract of a simulator outside JAX, and what simulators need of a family."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from epg.core.spaces import Spaces


class Simulator(Protocol):
    """A batch of running tasks outside JAX, one per row."""

    def prepare(self, states: np.ndarray) -> np.ndarray:
        """Add to drawn first states [..., rows, F] what only the simulator knows of them (sensors)."""
        ...

    def begin(self, states: np.ndarray) -> np.ndarray:
        """Begin an episode in every row and return the readout, float32 [rows, R]."""
        ...

    def advance(self, ctrl: np.ndarray, reset_states: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Apply controls [rows, C] and return the readout, float32 [rows, R], all of it finite.

        Only `rows` are simulated (None: all); the readout of the others is ignored. `reset_states` are for
        simulators that reset by themselves.
        """
        ...

    def repeat(self, times: int) -> "Simulator":
        """Return a simulator with each of these rows `times` times in a row, none of them begun."""
        ...

    def reset(self, rows: np.ndarray, states: np.ndarray) -> None:
        """Put the rows of the mask `rows` at their states."""
        ...


class Sizes(NamedTuple):
    """Lengths of a model's vectors."""

    qpos: int
    qvel: int
    sensors: int


@dataclass(frozen=True)
class Clock:
    """How the control interval is divided into physics steps."""

    timestep: float
    """Seconds per physics step."""
    frame_skip: int
    """Physics steps per action."""
    integrator: str = "implicitfast"
    """MuJoCo's name of the integrator, in lower case."""
    separate: bool = False
    """Whether each lifetime has its own MjData, like a single simulation: the solver starts from its last solution."""

    @property
    def interval(self) -> float:
        """Return the control interval in seconds."""
        return self.timestep * self.frame_skip


class MujocoSource(Protocol):
    """What MuJoCo models are built from: a MujocoFamily, as far as its simulator needs it."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def fast(self) -> Clock: ...
    @property
    def sizes(self) -> Sizes: ...
    @property
    def adapt(self) -> Callable[[Any], None] | None: ...
    @property
    def edit(self) -> Callable[[Any, Any], None] | None: ...
    @property
    def scale(self) -> Callable[[Any, Any, Any], None] | None: ...


class GymSource(Protocol):
    """What Gymnasium environments are made from: a GymFamily, as far as its simulator needs it."""

    @property
    def name(self) -> str: ...
    @property
    def make(self) -> Callable[[int], Any]: ...
    @property
    def spaces(self) -> Spaces: ...
    @property
    def horizon(self) -> int: ...
    @property
    def readout_size(self) -> int: ...
    @property
    def observation_space(self) -> Any: ...
    @property
    def action_space(self) -> Any: ...
