"""A family of your own from a MuJoCo model: swing up a pole (my_swinger.xml) whose length it cannot see."""

from pathlib import Path

import jax
import jax.numpy as jnp

import epg


def sample(key):  # a task is data: here the length, U(0.3, 0.8) m
    return jax.random.uniform(key, minval=0.3, maxval=0.8)


def edit(spec, length):  # write the task into the model; mass and inertia follow
    spec.geom("rod").fromto[5] = -float(length)


def reset(key, length):  # qpos and qvel: hanging, almost still
    return jax.random.uniform(key, (1,), minval=-0.1, maxval=0.1), jnp.zeros(1)


def observe(state, length):
    return jnp.concatenate([jnp.cos(state.qpos), jnp.sin(state.qpos), state.qvel])


def reward_and_done(state, action, length):  # the reward is the height of the tip; nothing ends the episode
    return -jnp.cos(state.qpos[0]), jnp.array(False)


SWINGER = epg.MujocoFamily(
    name="swinger", version=1, summary="swing up a pole of unknown length", spaces=epg.Spaces(observation=3, action=1),
    horizon=64, model=str(Path(__file__).with_name("my_swinger.xml")), fast=epg.Clock(0.02, 2),
    stock=epg.Clock(0.01, 4, "rk4", separate=True), sample=sample, edit=edit, reset=reset, observe=observe,
    reward_and_done=reward_and_done,
)  # fmt: skip

if __name__ == "__main__":
    print("loss in", epg.evolve("my_mujoco_family:SWINGER", preset="smoke", executor="inline").run)
