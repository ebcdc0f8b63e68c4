"""The contract of a simulator outside JAX."""

from typing import Protocol

import numpy as np


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
