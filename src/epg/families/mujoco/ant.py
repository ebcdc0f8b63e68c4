"""The ant: goal-ant, find the hidden goal; with arcs for unseen goals, and a variant without resets."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance, CameraPose, Marks
from epg.families.mujoco.base import Clock, MujocoFamily, SimState

DISTANCE = 10.0  # metres from the start to the goal
REACHED = 1.0  # metres from the goal at which it counts as reached

CIRCLE, RIGHT, LEFT = (-0.5, 0.5), (-0.25, 0.25), (0.25, 0.75)
"""Arcs of the goal's bearing, in turns from the x-axis."""


class Goal(NamedTuple):
    """A task of goal-ant."""

    bearing: Array  # of the goal, in turns within the arc's ends
    yaw: Array  # of the ant at the start of every episode, radians


def sample(key: Key, arc: tuple[float, float]) -> Goal:
    """Draw a task."""
    bearing, yaw = jax.random.split(key)
    return Goal(
        # Bearing of the goal: uniform on the arc.
        bearing=jax.random.uniform(bearing, minval=arc[0], maxval=arc[1]),
        # Yaw at the start: uniform on the circle.
        yaw=jax.random.uniform(yaw, minval=-jnp.pi, maxval=jnp.pi),
    )


def orbit(task: Goal, share: Array, arc: tuple[float, float]) -> Goal:
    """Move the goal's bearing, seen from the ant, by a share of a full turn.

    The goal moves along its arc, from the end back to the beginning; the ant's yaw turns by the rest.
    """
    width = arc[1] - arc[0]
    along = task.bearing - arc[0] + share * width
    times = jnp.floor(along / width)  # how often it wrapped around
    yaw = task.yaw - 2 * jnp.pi * jnp.mod(share * (1 - width) + times * width, 1.0)
    return Goal(arc[0] + along - times * width, jnp.where(yaw < -jnp.pi, yaw + 2 * jnp.pi, yaw))


def position(task: Goal) -> Array:
    """Return where the goal is, [2]."""
    angle = 2 * jnp.pi * task.bearing
    return DISTANCE * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def seen_from_start(task: Goal) -> Array:
    """Return where the ant sees the goal when it starts, in units of its distance, [2]: ahead, and to its left."""
    angle = 2 * jnp.pi * task.bearing - task.yaw
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def reset(key: Key, task: Goal) -> tuple[Array, Array]:
    """Stand at the origin, facing the task's yaw."""
    positions, velocities = jax.random.split(key)
    turn = jnp.stack([jnp.cos(task.yaw / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(task.yaw / 2)])
    pose = jnp.concatenate([jnp.array([0.0, 0.0, 0.75]), turn, jnp.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])])
    noise = jax.random.uniform(positions, (15,), minval=-0.1, maxval=0.1)
    return pose + noise, 0.1 * jax.random.normal(velocities, (14,))


def observe(state: SimState, task: Goal) -> Array:
    """See everything but x and y."""
    return jnp.concatenate([state.qpos[2:], state.qvel])


def approach(state: SimState, task: Goal) -> tuple[Array, Array]:
    """Return the velocity towards the goal and the distance that is left."""
    way = position(task) - state.qpos[:2]
    distance = jnp.linalg.norm(way)
    return jnp.dot(state.qpos_rate[:2], way) / jnp.maximum(distance, 1e-6), distance


def reward_and_done(state: SimState, action: Array, task: Goal) -> tuple[Array, Array]:
    """Reward velocity towards the goal; end when the torso is too low or too high."""
    height = state.qpos[2]
    return approach(state, task)[0], (height <= 0.2) | (height >= 1.0)


def reward_and_done_no_reset(state: SimState, action: Array, task: Goal) -> tuple[Array, Array]:
    """Reward velocity towards the goal; end only when it is reached."""
    velocity, distance = approach(state, task)
    return velocity, distance < REACHED


_SPECIFICATION = """{name}, version 1: Gymnasium's Ant-v5 with a hidden goal (GoalAnt of the paper).

Observation [27]: height, quaternion and eight joint angles; then the velocities of the torso (linear, angular) and
of the joints. Neither x and y nor the goal are seen.
Action [8]: torques of the joints, clipped to [-1, 1] (times 150 Nm).
Reward: mean velocity towards the goal over the control interval of 0.05 s. It is an input of the loss; where the ant
sees the goal at the start (x ahead, y to its left, in units of its distance) is a task feature that a loss may ask for.
{episode}
Task: the goal, {distance:g} m from the origin, its bearing uniform on {arc}; the yaw at the start, uniform.
Physics: implicitfast, 3 substeps of 1/60 s; @reference: RK4, 5 of 0.01 s, as Ant-v5.
Differences from Ant-v5: no contact forces in the observation, no reward for being healthy, no costs.
"""
_START = """Episode: starts at the origin with the task's yaw, every position off by U(-0.1, 0.1), every velocity by
0.1 N(0, 1). """
_ENDS = "Ends when the torso's height leaves (0.2, 1) or the physics diverges; cut after 200 steps."
_NO_RESET = f"""Ends when the goal is reached (within {REACHED:g} m) or the physics diverges. Cut after 200 steps,
but the next one continues from where the ant is: it is reset only after reaching the goal."""


def marks(task: Goal) -> Marks:
    """Show the goal, the way to it and, in a film, the ant's path."""
    goal = np.asarray(position(task))
    return Marks(np.array([*goal, 0.4]), 0.4, goal, path=True)


APPEARANCE = Appearance(
    CameraPose(120, -30, 4.8, (0.0, 0.0, 0.4), "xy"),
    marks,
    lambda task: f"goal at {np.mod(360 * task.bearing, 360):.0f}°",
)


def _family(name: str, arc: tuple[float, float], where: str, summary: str) -> MujocoFamily:
    return MujocoFamily(
        name=name,
        version=1,
        summary=summary,
        spaces=Spaces(observation=27, action=8, features=2),
        horizon=200,
        sample=partial(sample, arc=arc),
        orbit=partial(orbit, arc=arc),
        features=seen_from_start,
        appearance=APPEARANCE,
        stock_task=Goal(jnp.float32(sum(arc) / 2), jnp.zeros(())),
        model="gymnasium:ant.xml",
        fast=Clock(0.05 / 3, 3),
        stock=Clock(0.01, 5, "rk4", separate=True),
        reset=reset,
        observe=observe,
        reward_and_done=reward_and_done,
        specification=_SPECIFICATION.format(name=name, episode=_START + _ENDS, distance=DISTANCE, arc=where),
    )


GOAL_ANT = _family("goal-ant", CIRCLE, "the whole circle", "find out where the goal is, and walk there")
GOAL_ANT_RIGHT = _family("goal-ant-right", RIGHT, "the half circle around +x", "goal-ant, goals on the +x side only")
GOAL_ANT_LEFT = _family("goal-ant-left", LEFT, "the half circle around -x", "goal-ant, goals on the -x side only")


def sample_line(key: Key) -> Goal:
    """Draw a goal straight ahead or straight behind, each with probability 1/2; the ant faces +x."""
    return Goal(jnp.where(jax.random.bernoulli(key), 0.0, 0.5), jnp.zeros(()))


def orbit_line(task: Goal, share: Array) -> Goal:
    """Move the goal to the other side in the second half of the orbit."""
    return task._replace(bearing=jnp.where(share < 0.5, task.bearing, 0.5 - task.bearing))


GOAL_ANT_LINE = replace(
    GOAL_ANT,
    name="goal-ant@forward-backward",
    summary="goal-ant, goals straight ahead or behind only (Figure 22c)",
    sample=sample_line,
    orbit=orbit_line,
    specification=_SPECIFICATION.format(
        name="goal-ant@forward-backward",
        episode=_START + _ENDS,
        distance=DISTANCE,
        arc="{0, 1/2 turn} (yaw 0: ahead or behind)",
    ),
)
GOAL_ANT_NO_RESET = replace(
    GOAL_ANT,
    name="goal-ant-no-reset",
    summary="goal-ant, reset only when the goal is reached",
    reward_and_done=reward_and_done_no_reset,
    resets=False,
    specification=_SPECIFICATION.format(
        name="goal-ant-no-reset", episode=_START + _NO_RESET, distance=DISTANCE, arc="the whole circle"
    ),
)
