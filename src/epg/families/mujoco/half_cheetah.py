"""The half-cheetah: directional-half-cheetah, which way to run?"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import CameraPose
from epg.families.mujoco import direction
from epg.families.mujoco.base import Clock, MujocoFamily, SimState
from epg.families.mujoco.direction import Direction

CAMERA = CameraPose(90, -8, 2.8, (0.0, 0.0, 0.5), "x")


def reset(key: Key, task: Any) -> tuple[Array, Array]:
    """Lie on both feet."""
    positions, velocities = jax.random.split(key)
    return jax.random.uniform(positions, (9,), minval=-0.1, maxval=0.1), 0.1 * jax.random.normal(velocities, (9,))


def observe(state: SimState, task: Any) -> Array:
    """See everything but x."""
    return jnp.concatenate([state.qpos[1:], state.qvel])


def reward_and_done(state: SimState, action: Array, task: Direction) -> tuple[Array, Array]:
    """Reward velocity in the task's direction, less the cost of control; never end."""
    effort = jnp.sum(jnp.clip(action, -1.0, 1.0) ** 2)
    return task.sign * state.qpos_rate[0] - 0.05 * effort, jnp.array(False)


DIRECTIONAL_HALF_CHEETAH = MujocoFamily(
    name="directional-half-cheetah",
    version=1,
    summary="find out which way is rewarded, and run there",
    spaces=Spaces(observation=17, action=6),
    horizon=200,
    sample=direction.sample,
    orbit=direction.orbit,
    appearance=direction.appearance(CAMERA),
    stock_task=direction.FORWARDS,
    model="gymnasium:half_cheetah.xml",
    fast=Clock(0.05 / 3, 3),
    stock=Clock(0.01, 5, "euler", separate=True),
    reset=reset,
    observe=observe,
    reward_and_done=reward_and_done,
    specification="""directional-half-cheetah, version 1: Gymnasium's HalfCheetah-v5, rewarded forwards or backwards.

Observation [17]: height, torso angle, angles of back thigh, shin, foot and front thigh, shin, foot joint; then the
velocities of x, height, torso angle and the six joints.
Action [6]: torques of the six joints, clipped to [-1, 1] (times 60 to 120 Nm).
Reward: mean velocity over the control interval of 0.05 s times the task's sign, less 0.05 |a|² of the clipped action.
Only the reward reveals the direction, so it is an input of the loss.
Episode: starts on both feet, every position off by U(-0.1, 0.1), every velocity by 0.1 N(0, 1). Ends only when
the physics diverges; cut after 200 steps.
Task: the sign, +1 or -1, each with probability 1/2.
Physics: implicitfast, 3 substeps of 1/60 s; @reference: Euler, 5 of 0.01 s, as HalfCheetah-v5.
Differences from HalfCheetah-v5: weight 0.05 instead of 0.1 of the control cost, 200 steps instead of 1000.
""",
)
