"""The one-legged hopper: random-hopper (every task has other physics) and directional-hopper (hop which way?)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance, CameraPose
from epg.families.mujoco import direction
from epg.families.mujoco.base import Clock, MujocoFamily, SimState
from epg.families.mujoco.body_randomization import BodyRandomization, gravity_label
from epg.families.mujoco.direction import Direction

SPACES = Spaces(observation=11, action=3)
FAST, STOCK = Clock(0.004, 2), Clock(0.002, 4, "rk4", separate=True)
BODIES = BodyRandomization(("torso", "thigh", "leg", "foot"))

CAMERA = CameraPose(90, -8, 3.0, (0.0, 0.0, 0.72), "x")


def reset(key: Key, task: Any) -> tuple[Array, Array]:
    """Stand upright."""
    noise = jax.random.uniform(key, (12,), minval=-5e-3, maxval=5e-3)
    return jnp.array([0.0, 1.25, 0.0, 0.0, 0.0, 0.0]) + noise[:6], noise[6:]


def observe(state: SimState, task: Any) -> Array:
    """See everything but x."""
    return jnp.concatenate([state.qpos[1:], jnp.clip(state.qvel, -10.0, 10.0)])


def reward_and_done_forwards(state: SimState, action: Array, task: Any) -> tuple[Array, Array]:
    """Reward forward velocity; end when fallen."""
    return state.qpos_rate[0], (state.qpos[1] <= 0.7) | (jnp.abs(state.qpos[2]) >= 0.5)


def reward_and_done_direction(state: SimState, action: Array, task: Direction) -> tuple[Array, Array]:
    """Reward velocity in the task's direction; end when fallen."""
    return task.sign * state.qpos_rate[0], state.qpos[1] <= 0.7


RANDOM_HOPPER = MujocoFamily(
    name="random-hopper",
    version=1,
    summary="hop forwards with a body, floor and gravity never met before",
    spaces=SPACES,
    horizon=1000,
    sample=BODIES.sample,
    appearance=Appearance(CAMERA, label=gravity_label),
    stock_task=BODIES.stock,
    model="gymnasium:hopper.xml",
    edit=BODIES.edit,
    scale=BODIES.scale,
    fast=FAST,
    stock=STOCK,
    reset=reset,
    observe=observe,
    reward_and_done=reward_and_done_forwards,
    specification="""random-hopper, version 1: Gymnasium's Hopper-v5 with randomised physics (the paper's RandomHopper).

Observation [11]: height, torso angle, angles of thigh, leg and foot joint; then the velocities of x, height, torso
angle and the three joints, clipped to [-10, 10].
Action [3]: torques of thigh, leg and foot joint, clipped to [-1, 1] (times 200 Nm).
Reward: mean forward velocity over the control interval of 0.008 s. It is not an input of the loss.
Episode: starts upright, every position and velocity off by U(-0.005, 0.005). Ends when the height is at most 0.7,
when the torso leans by 0.5 rad or more, or when the physics diverges; cut after 1000 steps.
Task: gravity U(2, 20) m/s²; for torso, thigh, leg and foot: mass x U(0.5, 2) with the inertia that follows,
radius x U(0.5, 2), sliding friction x U(0.5, 2); sliding friction of the floor x U(0.5, 2).
Physics: implicitfast, 2 substeps of 0.004 s; @reference: RK4, 4 of 0.002 s, as Hopper-v5.
Differences from Hopper-v5: no reward for being healthy, no control cost, wider range of healthy angles.
""",
)

DIRECTIONAL_HOPPER = MujocoFamily(
    name="directional-hopper",
    version=1,
    summary="find out which way is rewarded, and hop there",
    spaces=SPACES,
    horizon=1000,
    sample=direction.sample,
    orbit=direction.orbit,
    appearance=direction.appearance(CAMERA),
    stock_task=direction.FORWARDS,
    model="gymnasium:hopper.xml",
    fast=FAST,
    stock=STOCK,
    reset=reset,
    observe=observe,
    reward_and_done=reward_and_done_direction,
    specification="""directional-hopper, version 1: Gymnasium's Hopper-v5, rewarded forwards or backwards.

Observation [11] and action [3]: as random-hopper.
Reward: mean velocity over the control interval of 0.008 s, times the task's sign. Only the reward reveals the
direction, so it is an input of the loss.
Episode: starts upright, every position and velocity off by U(-0.005, 0.005). Ends when the height is at most 0.7
or when the physics diverges; cut after 1000 steps.
Task: the sign, +1 or -1, each with probability 1/2.
Physics: implicitfast, 2 substeps of 0.004 s; @reference: RK4, 4 of 0.002 s, as Hopper-v5.
""",
)
