"""Poses for the picture of a family: some of its tasks, a moment after the start of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from epg.methods.filming import find_stage_family
from epg.parts.families.base import Task
from epg.parts.families.mujoco_family import MujocoFamily
from epg.words.keys import Split, Stream, lifetime_key, stream_key
from epg.words.settings import require

MOMENT, STRENGTH = 0.1, 0.3  # seconds of weak random actions: legs that start side by side come apart
WORDS = {"gravity": ("gravity", " m/s²"), "length": ("link lengths ×", ""), "offset": ("target off by", " m")}
MOST_TASKS = 6


@dataclass(frozen=True)
class Posed:
    """Tasks and how they look."""

    family: MujocoFamily
    """Where they come from."""
    tasks: list[Task]
    """In plain numbers."""
    poses: list[np.ndarray]
    """Positions, each [nq]."""
    labels: list[str]
    """What a picture does not show."""


def pose_tasks(name: str, number: int) -> Posed:
    """Draw training tasks, one of them moved evenly over the orbit where there is one, and act at random in each."""
    require(1 <= number <= MOST_TASKS, f"a picture shows 1 to {MOST_TASKS} tasks, not {number}.")
    family = find_stage_family(name)
    keys = [lifetime_key(0, Split.TRAIN, 0, index) for index in range(number)]
    tasks = [family.sample(stream_key(key, Stream.TASK)) for key in keys]
    if family.orbit is not None:
        tasks = [family.orbit(tasks[0], jnp.float32(index / number)) for index in range(number)]
    fresh = np.stack(
        [np.asarray(family.fresh(stream_key(key, Stream.RESET), task)) for key, task in zip(keys, tasks, strict=True)]
    )
    plain = [jax.tree.map(np.asarray, task) for task in tasks]
    simulator = family.simulate(plain)
    fresh = simulator.prepare(fresh)
    raw = simulator.begin(fresh)
    action = np.random.default_rng(0).uniform(-STRENGTH, STRENGTH, (number, family.spaces.action)).astype(np.float32)
    steer = jax.jit(family.steer)
    for _ in range(round(MOMENT / (family.fast.timestep * family.fast.substeps))):
        control = [np.asarray(steer(*row)) for row in zip(raw, action, tasks, strict=True)]
        raw = simulator.advance(np.stack(control), fresh)
    return Posed(family, plain, list(raw[:, : family.sizes.qpos]), [describe(task) for task in plain])


def describe(task: Task) -> str:
    """Say what a picture does not show of a task: its single numbers, by name."""
    from epg.parts.families.ant import Goal
    from epg.parts.families.direction import Direction

    if isinstance(task, Direction):
        return "forwards" if task.sign > 0 else "backwards"
    if isinstance(task, Goal):
        return f"goal at {np.mod(360 * task.bearing, 360):.0f}°"
    named: dict[str, np.ndarray] = task._asdict() if hasattr(task, "_asdict") else {}
    small = {name: np.atleast_1d(value) for name, value in named.items() if np.size(value) <= 3}
    said = []
    for name, value in small.items():
        before, after = WORDS.get(name, (name, ""))
        said.append(f"{before} {' '.join(f'{it:.2f}' for it in value)}{after}")
    return ", ".join(said).replace("-", "−")
