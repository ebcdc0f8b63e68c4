"""The two-legged walker: random-walker, every task has other physics."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance, CameraPose
from epg.families.mujoco.base import Clock, MujocoFamily, SimState
from epg.families.mujoco.body_randomization import BodyRandomization, gravity_label

BODIES = BodyRandomization(("torso", "thigh", "leg", "foot", "thigh_left", "leg_left", "foot_left"))


def reset(key: Key, task: Any) -> tuple[Array, Array]:
    """Stand upright."""
    noise = jax.random.uniform(key, (18,), minval=-5e-3, maxval=5e-3)
    return jnp.zeros(9).at[1].set(1.25) + noise[:9], noise[9:]


def observe(state: SimState, task: Any) -> Array:
    """See everything but x."""
    return jnp.concatenate([state.qpos[1:], jnp.clip(state.qvel, -10.0, 10.0)])


def reward_and_done(state: SimState, action: Array, task: Any) -> tuple[Array, Array]:
    """Reward forward velocity; end when fallen."""
    height, angle = state.qpos[1], state.qpos[2]
    return state.qpos_rate[0], (height <= 0.8) | (height >= 2.0) | (jnp.abs(angle) >= 1.0)


RANDOM_WALKER = MujocoFamily(
    name="random-walker",
    version=1,
    summary="walk forwards with a body, floor and gravity never met before",
    spaces=Spaces(observation=17, action=6),
    horizon=1000,
    sample=BODIES.sample,
    appearance=Appearance(CameraPose(90, -8, 3.0, (0.0, 0.0, 0.72), "x"), label=gravity_label),
    stock_task=BODIES.stock,
    model="gymnasium:walker2d_v5.xml",
    edit=BODIES.edit,
    scale=BODIES.scale,
    fast=Clock(0.004, 2),
    stock=Clock(0.002, 4, "rk4", separate=True),
    reset=reset,
    observe=observe,
    reward_and_done=reward_and_done,
    specification="""random-walker, version 1: Gymnasium's Walker2d-v5 with randomised physics.

Observation [17]: height, torso angle, angles of right thigh, leg, foot and left thigh, leg, foot joint; then the
velocities of x, height, torso angle and the six joints, clipped to [-10, 10].
Action [6]: torques of the six joints, clipped to [-1, 1] (times 100 Nm).
Reward: mean forward velocity over the control interval of 0.008 s. It is not an input of the loss.
Episode: starts upright, every position and velocity off by U(-0.005, 0.005). Ends when the height leaves
(0.8, 2), when the torso leans by 1 rad or more, or when the physics diverges; cut after 1000 steps.
Task: gravity U(2, 20) m/s²; for each of the seven parts: mass x U(0.5, 2) with the inertia that follows,
radius x U(0.5, 2), sliding friction x U(0.5, 2); sliding friction of the floor x U(0.5, 2).
Physics: implicitfast, 2 substeps of 0.004 s; @reference: RK4, 4 of 0.002 s, as Walker2d-v5.
Differences from Walker2d-v5: no reward for being healthy, no control cost.
""",
)
