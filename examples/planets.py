"""Balance a pole on planets of unknown gravity: one's own Gymnasium environment as a family."""

import gymnasium
import numpy as np

import epg


def make(seed):
    env = gymnasium.make("InvertedPendulum-v5", max_episode_steps=100)
    env.unwrapped.model.opt.gravity[2] = -np.random.default_rng(seed).uniform(3.0, 20.0)
    return env


PLANETS = epg.gym_family("planets", make)
