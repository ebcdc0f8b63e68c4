"""The ant: goal-ant, find the hidden goal; with arcs for goals never seen, and a life without resets."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.parts.families.base import Turns
from epg.parts.families.mujoco_family import Body, Clock, MujocoFamily
from epg.words.keys import Key
from epg.words.settings import Spaces

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


def move(task: Goal, share: Array, arc: tuple[float, float]) -> Goal:
    """Move the goal round the ant: along its arc, from its end back to its beginning, and the ant turns by the rest."""
    width = arc[1] - arc[0]
    along = task.bearing - arc[0] + share * width
    times = jnp.floor(along / width)  # it came back to the beginning
    yaw = task.yaw - 2 * jnp.pi * jnp.mod(share * (1 - width) + times * width, 1.0)
    return Goal(arc[0] + along - times * width, jnp.where(yaw < -jnp.pi, yaw + 2 * jnp.pi, yaw))


def place(task: Goal) -> Array:
    """Return the goal's bearing as the ant sees it, in turns from straight ahead."""
    return jnp.mod(task.bearing - task.yaw / (2 * jnp.pi), 1.0)


def position(task: Goal) -> Array:
    """Return where the goal is, [2]."""
    angle = 2 * jnp.pi * task.bearing
    return DISTANCE * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def reset(key: Key, task: Goal) -> tuple[Array, Array]:
    """Stand at the origin, facing the task's yaw."""
    positions, velocities = jax.random.split(key)
    turn = jnp.stack([jnp.cos(task.yaw / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(task.yaw / 2)])
    pose = jnp.concatenate([jnp.array([0.0, 0.0, 0.75]), turn, jnp.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])])
    noise = jax.random.uniform(positions, (15,), minval=-0.1, maxval=0.1)
    return pose + noise, 0.1 * jax.random.normal(velocities, (14,))


def observe(body: Body, task: Goal) -> Array:
    """See everything but x and y."""
    return jnp.concatenate([body.qpos[2:], body.qvel])


def approach(body: Body, task: Goal) -> tuple[Array, Array]:
    """Return the velocity towards the goal and the distance that is left."""
    way = position(task) - body.qpos[:2]
    distance = jnp.linalg.norm(way)
    return jnp.dot(body.speed[:2], way) / jnp.maximum(distance, 1e-6), distance


def judge(body: Body, action: Array, task: Goal) -> tuple[Array, Array]:
    """Reward velocity towards the goal; end when the torso is too low or too high."""
    height = body.qpos[2]
    return approach(body, task)[0], (height <= 0.2) | (height >= 1.0)


def judge_endless(body: Body, action: Array, task: Goal) -> tuple[Array, Array]:
    """Reward velocity towards the goal; end only when it is reached."""
    velocity, distance = approach(body, task)
    return velocity, distance < REACHED


def turned_observation(seen: Array) -> Array:
    """Return what the ant sees if its front is where its left side was: each leg's place is taken by the next one."""
    height, (w, x, y, z), joints = seen[:1], seen[1:5], seen[5:13]
    linear, (roll, pitch, yaw), speeds = seen[13:16], seen[16:19], seen[19:27]
    half = 2**-0.5
    orientation = half * jnp.stack([w - z, x + y, y - x, z + w])  # then a quarter turn about the ant's own z
    rates = jnp.stack([pitch, -roll, yaw])
    return jnp.concatenate([height, orientation, _next_leg(joints), linear, rates, _next_leg(speeds)])


def turned_action(action: Array) -> Array:
    """Return the torques of the same motion in those names; here the fourth leg comes first."""
    return jnp.roll(_next_leg(jnp.roll(action, -2)), 2)


def _next_leg(joints: Array) -> Array:
    """Give every leg's hip and ankle, legs 1 to 4, to the one before it; every other ankle's axis points back."""
    return jnp.roll(joints, -2) * jnp.array([1.0, -1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0])


_SPECIFICATION = """{name}, version 1: Gymnasium's Ant-v5 with a hidden goal (GoalAnt of the paper).

Observation [27]: height, quaternion and eight joint angles; then the velocities of the torso (linear, angular) and
of the joints. Neither x and y nor the goal are seen.
Action [8]: torques of the joints, clipped to [-1, 1] (times 150 Nm).
Reward: mean velocity towards the goal over the control interval of 0.05 s. It is an input of the loss; the goal's
position (in units of its distance) is a task feature that a loss may ask for.
{episode}
Task: the goal, {distance:g} m from the origin, its bearing uniform on {arc}; the yaw at the start, uniform.
Physics: implicitfast, 3 substeps of 1/60 s; @reference: RK4, 5 of 0.01 s, as Ant-v5.
Differences from Ant-v5: no contact forces in the observation, no reward for being healthy, no costs.
"""
_START = """Episode: starts at the origin with the task's yaw, every position off by U(-0.1, 0.1), every velocity by
0.1 N(0, 1). """
_ENDS = "Ends when the torso's height leaves (0.2, 1) or the physics explodes; cut after 200 steps."
_ENDLESS = f"""Ends when the goal is reached (within {REACHED:g} m) or the physics explodes. Cut after 200 steps,
but the next one goes on from where the ant is: it is put back to the start only after reaching the goal."""


def _family(name: str, arc: tuple[float, float], where: str, summary: str) -> MujocoFamily:
    return MujocoFamily(
        name=name,
        version=1,
        summary=summary,
        spaces=Spaces(observation=27, action=8, features=2),
        horizon=200,
        sample=partial(sample, arc=arc),
        orbit=partial(move, arc=arc),
        place=place,
        turns=Turns(4, turned_observation, turned_action),
        features=lambda task: position(task) / DISTANCE,
        stock_task=Goal(jnp.float32(sum(arc) / 2), jnp.zeros(())),
        model="gymnasium:ant.xml",
        fast=Clock(0.05 / 3, 3),
        stock=Clock(0.01, 5, "rk4", alone=True),
        reset=reset,
        observe=observe,
        judge=judge,
        specification=_SPECIFICATION.format(name=name, episode=_START + _ENDS, distance=DISTANCE, arc=where),
    )


GOAL_ANT = _family("goal-ant", CIRCLE, "the whole circle", "find out where the goal is, and walk there")
GOAL_ANT_RIGHT = _family("goal-ant-right", RIGHT, "the half circle around +x", "goal-ant, goals on the +x side only")
GOAL_ANT_LEFT = _family("goal-ant-left", LEFT, "the half circle around -x", "goal-ant, goals on the -x side only")
GOAL_ANT_ENDLESS = replace(
    GOAL_ANT,
    name="goal-ant-no-reset",
    summary="goal-ant, put back to the start only when the goal is reached",
    judge=judge_endless,
    resets=False,
    specification=_SPECIFICATION.format(
        name="goal-ant-no-reset", episode=_START + _ENDLESS, distance=DISTANCE, arc="the whole circle"
    ),
)
