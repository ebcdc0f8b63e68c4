"""The Fetch arm: fetch-reach, bring the gripper to a target that is another in every task."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance, CameraPose, Marks
from epg.families.mujoco.base import Clock, MujocoFamily, SimState

REACH = 0.15  # metres: largest offset of the target along each axis
STRIDE = 0.05  # metres: how far an action of 1 moves what the gripper is pulled to
INTERVAL = 0.04  # seconds between two actions

HINGES = (  # from the torso to the gripper: where each joint is on the part before it, and the axis it turns about
    ((0.1195, 0.0, 0.3486), 2),
    ((0.117, 0.0, 0.06), 1),
    ((0.219, 0.0, 0.0), 0),
    ((0.133, 0.0, 0.0), 1),
    ((0.197, 0.0, 0.0), 0),
    ((0.1245, 0.0, 0.0), 1),
    ((0.1385, 0.0, 0.0), 0),
)
TORSO = (0.2, 0.2641, 0.3774)  # of the torso at zero
PALM, GRIP = (0.1664, 0.0, 0.0), (0.02, 0.0, 0.0)  # of the gripper on the wrist, of the point to bring to the target
DOWN = (1.0, 0.0, 1.0, 0.0)  # the gripper's fingers point downwards

ARM = (0.009686374, -0.825724552, -0.003111649, 1.444120188, 0.002634553, 0.952994638, 0.005877769)
ARM_SPEED = (0.000734936, 0.008056582, -0.001384011, -0.004782198, 0.001102038, 0.000744651, -0.000931774)
START = (  # base, torso, head (two joints), arm, fingers
    (0.404899865, 0.48, 3.61e-7, 0.001270221, 0.0, 0.060028835, *ARM, 0.0, 0.0),
    (-4e-9, 0.0, 4.67e-7, 0.003255196, 0.0, 7.2211e-5, *ARM_SPEED, 0.0, 0.0),
)
"""Positions and velocities after FetchReach-v4 has pulled the arm into place for 0.4 s, the fingers closed."""
CENTRE = (1.341813, 0.749101, 0.534722)  # where the gripper's point then is


def product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the product of two quaternions."""
    (a, *u), (b, *v) = p, q
    return np.array([a * b - np.dot(u, v), *(a * np.array(v) + b * np.array(u) + np.cross(u, v))])


AROUND = [np.array([product(it, axis) for it in np.eye(4)], np.float32) for axis in np.eye(4)[1:]]
"""A quaternion as a row, times one of these, is its product with i, j or k."""


@cache
def _turned(vector: tuple[float, ...]) -> np.ndarray:
    """Return the numbers [4, 4, 3] with which a quaternion's components, two by two, give the turned vector."""
    mirror = np.array([1.0, -1.0, -1.0, -1.0])
    inner = [[product(product(p, np.array([0.0, *vector])), mirror * q)[1:] for q in np.eye(4)] for p in np.eye(4)]
    return np.array(inner, np.float32)


def rotate(turn: Array, vector: tuple[float, ...]) -> Array:
    """Return a vector turned by a quaternion of length 1: its product with both."""
    return jnp.tensordot(jnp.outer(turn, turn), _turned(vector), 2)


class Target(NamedTuple):
    """A task of fetch-reach."""

    offset: Array  # [3] of the target from where the gripper starts, metres


def sample(key: Key) -> Target:
    """Draw a task."""
    # Offset of the target: U(-0.15, 0.15) m along each axis.
    return Target(jax.random.uniform(key, (3,), minval=-REACH, maxval=REACH))


def adapt(spec: Any) -> None:
    """Weld the gripper to the body that pulls it with no distance and no turn between them, and lock the fingers."""
    (weld,) = spec.equalities
    weld.data[3:10] = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    for side in "rl":  # FetchReach puts them back to zero after every action
        spec.joint(f"robot0:{side}_gripper_finger_joint").damping[0] = 1e7


def hand(qpos: Array) -> tuple[Array, Array]:
    """Return where the gripper is, [3], and its quaternion, [4]."""
    place = jnp.array(TORSO) + qpos[:3] + qpos[3] * jnp.array([0.0, 0.0, 1.0])
    turn = jnp.array([1.0, 0.0, 0.0, 0.0])
    for (offset, axis), angle in zip(HINGES, qpos[6:13], strict=True):
        place = place + rotate(turn, offset)
        turn = jnp.cos(angle / 2) * turn + jnp.sin(angle / 2) * (turn @ AROUND[axis])
    return place + rotate(turn, PALM), turn


def grip(qpos: Array) -> Array:
    """Return where the point between the fingers is, [3]."""
    place, turn = hand(qpos)
    return place + rotate(turn, GRIP)


def goal(task: Target) -> Array:
    """Return where the target is, [3]."""
    return jnp.array(CENTRE) + task.offset


def reset(key: Key, task: Target) -> tuple[Array, Array]:
    """Begin above the table, always alike."""
    qpos, qvel = START
    return jnp.array(qpos), jnp.array(qvel)


def action_to_ctrl(state: SimState, action: Array, task: Target) -> Array:
    """Pull the gripper a step away from where it is, and its fingers downwards."""
    place, turn = hand(state.qpos)
    return jnp.concatenate([place + STRIDE * jnp.clip(action[:3], -1.0, 1.0), turn + jnp.array(DOWN)])


def observe(state: SimState, task: Target) -> Array:
    """See the gripper, its fingers, how both move within a control interval, and the target."""
    place, velocity = jax.jvp(grip, (state.qpos,), (state.qvel,))
    moves = INTERVAL * jnp.concatenate([velocity, state.qvel[13:]])
    return jnp.concatenate([place, state.qpos[13:], moves, goal(task)])


def reward_and_done(state: SimState, action: Array, task: Target) -> tuple[Array, Array]:
    """Reward nearness; never end."""
    return -jnp.linalg.norm(grip(state.qpos) - goal(task)), jnp.array(False)


def offset_label(task: Target) -> str:
    """Say what a picture does not show."""
    return ("target offset " + " ".join(f"{float(it):.2f}" for it in task.offset) + " m").replace("-", "−")


APPEARANCE = Appearance(
    CameraPose(132, -18, 1.35, (1.22, 0.75, 0.56)),
    marks=lambda task: Marks(np.asarray(goal(task)), 0.02),
    label=offset_label,
)

FETCH_REACH = MujocoFamily(
    name="fetch-reach",
    version=1,
    summary="bring the gripper of a robot's arm to a target",
    spaces=Spaces(observation=13, action=4),
    horizon=50,
    sample=sample,
    constant_inputs=tuple((10 + axis, CENTRE[axis], REACH / 3**0.5) for axis in range(3)),
    appearance=APPEARANCE,
    stock_task=Target(jnp.zeros(3)),
    model="gymnasium_robotics:fetch/reach.xml",
    adapt=adapt,
    fast=Clock(0.004, 10),
    stock=Clock(0.002, 20, "euler", separate=True),
    reset=reset,
    observe=observe,
    reward_and_done=reward_and_done,
    action_to_ctrl=action_to_ctrl,
    specification="""fetch-reach, version 1: FetchReach-v4 of Gymnasium-Robotics, its target fixed for a lifetime.

Needs the model files of Gymnasium-Robotics: install epg[robotics].
Observation [13]: x, y and z of the point between the fingers; displacements of the right and left finger; the way
that these five move in 0.04 s at their present velocity; x, y and z of the target.
Action [4]: where to pull the gripper to, x, y and z from where it is, clipped to [-1, 1] (times 0.05 m). The fourth
would open the fingers, but they are locked.
Reward: minus the distance from the point between the fingers to the target, in metres. It is not an input of the
loss: the target is seen.
Episode: starts with the gripper at (1.342, 0.749, 0.555) m, pointing downwards (the point between its fingers is at
(1.342, 0.749, 0.535) m), always alike. Ends only when the physics diverges; cut after 50 steps.
Task: the target's offset from where the point between the fingers starts, U(-0.15, 0.15) m along each axis.
Physics: implicitfast, 10 substeps of 0.004 s; @reference: Euler, 20 of 0.002 s, as FetchReach-v4.
Differences from FetchReach-v4: the reward is dense; the fingers are held by damping, not put back to zero after every
action (their velocities in the observation are zero); the target stays the same from episode to episode.
""",
)
