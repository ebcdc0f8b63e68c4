"""The half-cheetah: directional-half-cheetah (run which way?), signed-half-cheetah (what do the motors do?), and the
environment of the MAML paper's figure.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance, CameraPose
from epg.families.mujoco import direction, motor_sign
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


def reward_and_done_forwards(state: SimState, action: Array, task: Any) -> tuple[Array, Array]:
    """Reward forward velocity, less the cost of control; never end."""
    return reward_and_done(state, action, direction.FORWARDS)


SIGNED_HALF_CHEETAH = replace(
    DIRECTIONAL_HALF_CHEETAH,
    name="signed-half-cheetah",
    summary="run forwards with motors that may be reversed, without any reward to tell",
    sample=motor_sign.sample,
    orbit=motor_sign.orbit,
    appearance=Appearance(CAMERA, label=motor_sign.label),
    stock_task=motor_sign.STOCK,
    reward_and_done=reward_and_done_forwards,
    action_to_ctrl=motor_sign.action_to_ctrl,
    specification="""signed-half-cheetah, version 1: Gymnasium's HalfCheetah-v5 with motors of unknown sign.

Not one of the paper's families. One observation does not tell the tasks apart: a loss has to find out the sign.
Observation [17]: as directional-half-cheetah. Action [6]: as there, times the task's sign.
Reward: mean forward velocity over the control interval of 0.05 s, less 0.05 |a|² of the clipped action. It is not an
input of the loss: how the body moves after an action reveals the sign.
Task: the sign of all motors, +1 or -1, each with probability 1/2.
Episode and physics: as directional-half-cheetah.
""",
)

# --- the environment of the MAML paper (Finn et al. 2017, Figure 5) --------------------------------------------------

TORSO = (6.2502092, (0.15238988, 0.02539831))  # mass, and centre of mass in the plane: x, z
LEGS = (  # bodies of a leg, each: where it begins in its parent's frame, mass, centre of mass
    (
        ((-0.5, 0.0), 1.5435146, (0.1, -0.13)),
        ((0.16, -0.25), 1.5874477, (-0.14, -0.07)),
        ((-0.28, -0.14), 1.0953975, (0.03, -0.097)),
    ),
    (
        ((0.5, 0.0), 1.4380753, (-0.07, -0.12)),
        ((-0.14, -0.24), 1.2008368, (0.065, -0.09)),
        ((0.13, -0.18), 0.8845188, (0.045, -0.07)),
    ),
)


def _turn(offset: tuple[float, float], angle: Array) -> Array:
    x, z = offset
    return jnp.stack([x * jnp.cos(angle) + z * jnp.sin(angle), z * jnp.cos(angle) - x * jnp.sin(angle)])


def centre_of_mass(qpos: Array) -> Array:
    """Return x and z of the whole body's centre of mass."""
    torso = qpos[:2] + jnp.array([0.0, 0.7])
    mass, place = TORSO
    total, moment = mass, mass * (torso + _turn(place, qpos[2]))
    for leg, angles in zip(LEGS, (qpos[3:6], qpos[6:9]), strict=True):
        begin, angle = torso, qpos[2]
        for (offset, mass, place), turned in zip(leg, angles, strict=True):
            begin = begin + _turn(offset, angle)
            angle = angle + turned
            total, moment = total + mass, moment + mass * (begin + _turn(place, angle))
    return moment / total


def maml_reset(key: Key, task: Any) -> tuple[Array, Array]:
    """Lie on both feet, nearly at rest."""
    positions, velocities = jax.random.split(key)
    return 0.01 * jax.random.normal(positions, (9,)), 0.1 * jax.random.normal(velocities, (9,))


def maml_observe(state: SimState, task: Any) -> Array:
    """See everything but x, and the centre of mass."""
    x, z = centre_of_mass(state.qpos)
    return jnp.concatenate([state.qpos[1:], state.qvel, jnp.stack([x, jnp.zeros(()), z])])


def maml_reward_and_done(state: SimState, action: Array, task: Direction) -> tuple[Array, Array]:
    """Reward the present velocity of the centre of mass, less the cost of control; never end."""
    velocity = jax.jvp(centre_of_mass, (state.qpos,), (state.qvel,))[1][0]
    return task.sign * velocity - 0.05 * jnp.sum(jnp.clip(action, -1.0, 1.0) ** 2), jnp.array(False)


DIRECTIONAL_HALF_CHEETAH_MAML = replace(
    DIRECTIONAL_HALF_CHEETAH,
    name="directional-half-cheetah@maml",
    summary="the half-cheetah of the MAML paper: control every 0.01 s, other observations",
    spaces=Spaces(observation=20, action=6),
    fast=Clock(0.01, 1, "euler"),
    stock=Clock(0.01, 1, "euler", separate=True),
    reset=maml_reset,
    observe=maml_observe,
    reward_and_done=maml_reward_and_done,
    specification="""directional-half-cheetah@maml, version 1: half-cheetah, forward/backward, of Finn et al. 2017.

The same model as HalfCheetah-v5. Observation [20]: the 17 of directional-half-cheetah; x, y (zero) and z of the centre
of mass of the whole body. Action [6]: torques of the six joints, clipped to [-1, 1] (times 60 to 120 Nm).
Reward: velocity of the centre of mass times the task's sign, less 0.05 |a|² of the clipped action.
Episode: starts on both feet, every position off by 0.01 N(0, 1), every velocity by 0.1 N(0, 1). Ends only when
the physics diverges; cut after 200 steps (2 s). Task: the sign, +1 or -1, each with probability 1/2.
Physics: Euler, one step of 0.01 s per action. Differences from the original: MuJoCo 3 instead of 1.3, directions are
drawn balanced in MAML's training.
Published: MAML -51 before, 293 after one update on 4000 steps, 316 after three; random initialization 22 after one.
""",
)
