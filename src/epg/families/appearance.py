"""How pictures show a family: camera pose, marks drawn into the scene, and a label per task. No JAX, no MuJoCo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class CameraPose:
    """Where the camera stands."""

    azimuth: float
    """Degrees around the vertical; 90 looks along y, with x to the right."""
    elevation: float
    """Degrees; -90 looks straight down."""
    distance: float
    """Metres from what it looks at."""
    lookat: tuple[float, float, float]
    """Point it looks at, metres; relative to the first body along the axes that it tracks."""
    track: str = ""
    """Axes along which the camera moves with the first body: "", "x" or "xy"."""


@dataclass(frozen=True)
class Marks:
    """What is drawn into the scene beside the model."""

    goal: np.ndarray | None = None
    """Position of the goal, [3]."""
    radius: float = 0.0
    """Radius of the goal's sphere, metres."""
    direction: np.ndarray | None = None
    """Rewarded direction in the plane, [2]; with a goal, its direction from the start."""
    path: bool = False
    """Whether a film also draws the body's path in the plane (Figure 15)."""


def no_marks(task: Any) -> Marks:
    """Draw nothing."""
    return Marks()


def label_numbers(task: Any) -> str:
    """Return the short fields of a task, by name."""
    named: dict[str, np.ndarray] = task._asdict() if hasattr(task, "_asdict") else {}
    short = {name: np.atleast_1d(value) for name, value in named.items() if np.size(value) <= 3}
    parts = [f"{name} {' '.join(f'{it:.2f}' for it in value)}" for name, value in short.items()]
    return ", ".join(parts).replace("-", "−")


@dataclass(frozen=True)
class Appearance:
    """How pictures show a family."""

    camera: CameraPose | None = None
    """Camera pose; by default a three-quarter view of the whole model."""
    marks: Callable[[Any], Marks] = no_marks
    """Return what is drawn into the scene of a task."""
    label: Callable[[Any], str] = label_numbers
    """Say what a picture does not show of a task."""
