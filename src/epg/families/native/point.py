"""Point masses in the plane: the cheapest families in which a loss has something to find out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.base import JaxFamily
from epg.families.symmetry import rotate, wrap

INTERVAL = 0.1  # seconds per step
DRAG = 1.0  # per second


class PointState(NamedTuple):
    """A point mass and, where it is observed, its goal."""

    position: Array  # [2]
    velocity: Array  # [2]
    goal: Array  # [2]


def move(state: PointState, acceleration: Array) -> PointState:
    """Advance by one interval with drag (semi-implicit Euler)."""
    velocity = state.velocity + INTERVAL * (acceleration - DRAG * state.velocity)
    return PointState(state.position + INTERVAL * velocity, velocity, state.goal)


GOAL_DISTANCE = 10.0
GOAL_THRUST = 1.0  # acceleration at action 1: an episode covers about a fifth of the way


class GoalTask(NamedTuple):
    """A hidden place."""

    goal: Array  # [2]


def _goal_sample(key: Key) -> GoalTask:
    # Direction: uniform on the circle. Distance: always 10, so that no direction is easier than another.
    angle = jax.random.uniform(key, (), minval=-jnp.pi, maxval=jnp.pi)
    return GoalTask(GOAL_DISTANCE * jnp.stack([jnp.cos(angle), jnp.sin(angle)]))


def _goal_orbit(task: GoalTask, share: Array) -> GoalTask:
    return GoalTask(rotate(task.goal, share))


def _goal_reset(key: Key, task: GoalTask) -> PointState:
    return PointState(0.5 * jax.random.normal(key, (2,)), jnp.zeros(2), task.goal)


def _goal_observe(state: PointState, task: GoalTask) -> Array:
    return jnp.concatenate([state.position, state.velocity])


def _goal_step(state: PointState, action: Array, task: GoalTask) -> tuple[PointState, Array, Array]:
    after = move(state, GOAL_THRUST * jnp.clip(action, -1.0, 1.0))
    gained = jnp.linalg.norm(state.position - task.goal) - jnp.linalg.norm(after.position - task.goal)
    return after, gained / INTERVAL, jnp.array(False)


POINT_GOAL = JaxFamily(
    name="point-goal",
    version=1,
    summary="point mass, hidden goal on a circle; the loss sees the reward and must explore",
    spaces=Spaces(observation=4, action=2, features=2),
    horizon=32,
    sample=_goal_sample,
    reset=_goal_reset,
    observe=_goal_observe,
    step=_goal_step,
    features=lambda task: task.goal,
    orbit=_goal_orbit,
    specification="""A point mass that must find out which way to go.

Observation (4): position x, y; velocity x, y. Action (2): acceleration, clipped to [-1, 1]. Drag: 1 per second.
Reward: velocity towards the goal, each step of 0.1 s. Episodes: 32 steps from rest near the origin (std
0.5), never terminated; full thrust covers about 2.2. Task: goal at distance 10 in a uniform direction.
Task features (2): the goal.
""",
)


MAX_ROTATION = jnp.pi / 3
REACH_THRUST = 1.0  # acceleration at action 1 and gain 1


class ReachTask(NamedTuple):
    """Actuators that do not do what their names say."""

    rotation: Array  # angle between the action and the acceleration it causes
    gain: Array  # scale of the acceleration


def _reach_sample(key: Key) -> ReachTask:
    key_rotation, key_gain = jax.random.split(key)
    # Rotation: U(-60, 60) degrees. Gain: log-uniform in [0.5, 2].
    rotation = jax.random.uniform(key_rotation, (), minval=-MAX_ROTATION, maxval=MAX_ROTATION)
    gain = 2.0 ** jax.random.uniform(key_gain, (), minval=-1.0, maxval=1.0)
    return ReachTask(rotation, gain)


def _reach_orbit(task: ReachTask, share: Array) -> ReachTask:
    return ReachTask(wrap(task.rotation, share, -MAX_ROTATION, MAX_ROTATION), task.gain)


def _reach_reset(key: Key, task: ReachTask) -> PointState:
    key_position, key_goal = jax.random.split(key)
    angle = jax.random.uniform(key_goal, (), minval=-jnp.pi, maxval=jnp.pi)
    goal = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return PointState(0.1 * jax.random.normal(key_position, (2,)), jnp.zeros(2), goal)


def _reach_observe(state: PointState, task: ReachTask) -> Array:
    return jnp.concatenate([state.goal - state.position, state.velocity])


def _reach_step(state: PointState, action: Array, task: ReachTask) -> tuple[PointState, Array, Array]:
    x, y = jnp.clip(action, -1.0, 1.0)
    cos, sin = jnp.cos(task.rotation), jnp.sin(task.rotation)
    turned = jnp.stack([cos * x - sin * y, sin * x + cos * y])
    state = move(state, REACH_THRUST * task.gain * turned)
    distance = jnp.linalg.norm(state.position - state.goal)
    return state, 1.0 - distance, jnp.array(False)


POINT_REACH = JaxFamily(
    name="point-reach",
    version=1,
    summary="point mass, goal observed, actuators rotated and scaled; no reward: the loss identifies the system",
    spaces=Spaces(observation=4, action=2, features=3),
    horizon=32,
    sample=_reach_sample,
    reset=_reach_reset,
    observe=_reach_observe,
    step=_reach_step,
    features=lambda task: jnp.stack([jnp.cos(task.rotation), jnp.sin(task.rotation), task.gain]),
    orbit=_reach_orbit,
    specification="""A point mass that must reach a goal it sees, with actuators rotated and scaled unseen.

Observation (4): goal - position x, y; velocity x, y. Action (2): clipped to [-1, 1], rotated by the task's
angle, times the gain. Reward: 1 - distance to the goal, each step; not an input of the loss. Episodes: 32
steps from rest near the origin, goal at distance 1 in a uniform direction drawn for each episode.
Task: rotation U(-60, 60) degrees, gain log-uniform in [0.5, 2]. Task features (3): cos, sin, gain.
""",
)
