"""The two-link arm: random-reacher, links of other lengths in every task."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.appearance import Appearance, CameraPose
from epg.families.mujoco.base import Clock, MujocoFamily, SimState

LINK, TIP = 0.1, 0.11  # metres: length of a link, and where the fingertip is on the second one


class Links(NamedTuple):
    """A task of random-reacher: factors on the stock model."""

    length: Array  # [2] of each link


STOCK_LINKS = Links(jnp.ones(2))


def sample(key: Key) -> Links:
    """Draw a task."""
    # Length of each link: stock times U(0.5, 1.5).
    return Links(jax.random.uniform(key, (2,), minval=0.5, maxval=1.5))


def edit(spec: Any, task: Links) -> None:
    """Stretch both links; their masses follow, at the stock density."""
    first, second = (float(factor) for factor in task.length)
    for name, factor in (("link0", first), ("link1", second)):
        spec.geom(name).fromto[3] *= factor
    spec.body("body1").pos[0] *= first
    spec.body("fingertip").pos[0] *= second


def reset(key: Key, task: Links) -> tuple[Array, Array]:
    """Begin near the stretched arm, with a target anywhere on the disc of radius 0.2."""
    arm, radius, angle, velocity = jax.random.split(key, 4)
    joints = jax.random.uniform(arm, (2,), minval=-0.1, maxval=0.1)
    distance = 0.2 * jnp.sqrt(jax.random.uniform(radius))
    bearing = jax.random.uniform(angle, maxval=2 * jnp.pi)
    target = distance * jnp.stack([jnp.cos(bearing), jnp.sin(bearing)])
    speed = jax.random.uniform(velocity, (2,), minval=-5e-3, maxval=5e-3)
    return jnp.concatenate([joints, target]), jnp.concatenate([speed, jnp.zeros(2)])


def fingertip(qpos: Array, task: Links) -> Array:
    """Return where the fingertip is, [2]."""
    angles = jnp.cumsum(qpos[:2])
    arms = task.length * jnp.array([LINK, TIP])
    return jnp.stack([arms @ jnp.cos(angles), arms @ jnp.sin(angles)])


def observe(state: SimState, task: Links) -> Array:
    """See the joints, the target, and the way from it to the fingertip."""
    angles, target = state.qpos[:2], state.qpos[2:]
    return jnp.concatenate(
        [jnp.cos(angles), jnp.sin(angles), target, state.qvel[:2], fingertip(state.qpos, task) - target]
    )


def reward_and_done(state: SimState, action: Array, task: Links) -> tuple[Array, Array]:
    """Reward nearness; never end."""
    return -jnp.linalg.norm(fingertip(state.qpos, task) - state.qpos[2:]), jnp.array(False)


def length_label(task: Links) -> str:
    """Say what a picture does not show."""
    return "link lengths × " + " ".join(f"{float(it):.2f}" for it in task.length)


RANDOM_REACHER = MujocoFamily(
    name="random-reacher",
    version=1,
    summary="reach targets with an arm whose links have unknown lengths",
    spaces=Spaces(observation=10, action=2),
    horizon=50,
    sample=sample,
    appearance=Appearance(CameraPose(90, -90, 0.74, (0.0, 0.0, 0.0)), label=length_label),
    stock_task=STOCK_LINKS,
    model="gymnasium:reacher.xml",
    edit=edit,
    fast=Clock(0.02, 1),
    stock=Clock(0.01, 2, "rk4", separate=True),
    reset=reset,
    observe=observe,
    reward_and_done=reward_and_done,
    specification="""random-reacher, version 1: Gymnasium's Reacher-v5 with links of other lengths.

Observation [10]: cosines and sines of both joints, the target's x and y, the joints' velocities, and x and y of
the fingertip minus the target's.
Action [2]: torques of both joints, clipped to [-1, 1] (times 200 Nm).
Reward: minus the distance from fingertip to target, in metres. It is not an input of the loss: the target is seen.
Episode: both joints start at U(-0.1, 0.1) rad with velocity U(-0.005, 0.005); the target is uniform on the disc of
radius 0.2, whether this arm can reach it or not. Ends only when the physics diverges; cut after 50 steps.
Task: the length of each link x U(0.5, 1.5); mass and inertia follow at the stock density.
Physics: implicitfast, 1 substep of 0.02 s; @reference: RK4, 2 of 0.01 s, as Reacher-v5.
Differences from Reacher-v5: no control cost; the distance is of the new state, not of a substep before it.
""",
)
