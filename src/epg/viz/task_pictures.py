"""Poses for the picture of a family: some of its tasks, a moment after the start of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.errors import require
from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.families.base import Task
from epg.families.mujoco.base import MujocoFamily
from epg.lifetime.env_step import Actor
from epg.lifetime.host_stepper import Draws, HostStepper
from epg.policies.open_loop import OpenLoopPolicy
from epg.viz.recording import find_mujoco_family

SECONDS, STRENGTH = 0.1, 0.3  # of weak random actions: legs that start side by side come apart
MAX_TASKS = 6


@dataclass(frozen=True)
class PosedTasks:
    """Tasks and how they look."""

    family: MujocoFamily
    """Where they come from."""
    tasks: list[Task]
    """In plain numbers."""
    qpos: list[np.ndarray]
    """Positions, each [nq]."""
    labels: list[str]
    """What a picture does not show."""


def pose_tasks(name: str, number: int) -> PosedTasks:
    """Draw training tasks, or one moved evenly over the orbit where there is one, and act at random in each."""
    require(1 <= number <= MAX_TASKS, f"a picture shows 1 to {MAX_TASKS} tasks, not {number}.")
    family = find_mujoco_family(name)
    keys = jnp.stack([lifetime_key(0, Split.TRAIN, 0, index) for index in range(number)])
    drawn = [family.sample(stream_key(key, Stream.TASK)) for key in keys]
    if family.orbit is not None:
        drawn = [family.orbit(drawn[0], jnp.float32(index / number)) for index in range(number)]
    stepper = HostStepper(OpenLoopPolicy(), family)
    batch = stepper.batch(keys, jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn))
    states = stepper.draw_states(batch, None, None)
    action = np.random.default_rng(0).uniform(-STRENGTH, STRENGTH, (number, family.spaces.action)).astype(np.float32)
    steps = round(SECONDS / family.fast.interval)
    draws = Draws(jnp.repeat(jnp.asarray(action)[None], steps, axis=0), states)
    nobody = Actor((), jnp.zeros((number, 1)), jnp.ones((number, 1)))
    readout = None
    for seen in stepper.steps(batch, nobody, stepper.begin(batch, states[0]), draws, np.arange(number)):
        readout = stepper.packing.column(seen, "readout")
    assert readout is not None
    plain = [jax.tree.map(np.asarray, task) for task in drawn]
    labels = [family.appearance.label(task) for task in plain]
    return PosedTasks(family, plain, list(readout[:, : family.sizes.qpos]), labels)
