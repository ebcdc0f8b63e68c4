"""Recipe of fetch-reach. The loss sees no reward: the target is observed."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="fetch-reach",
        policy=POLICY,
        loss=LossSettings(window=128),
        lifetime=LifetimeSettings(64, updates=16, minibatch=64, update_epochs=4, scoring_episodes=8, **ANNEALED),
        evolution=replace(EVOLUTION, noise_vectors=64, lifetimes=64),
    ),
    paper_sizes=(32, 256),
    ppo={
        1024: PPOTuning(steps_per_update=256, update_epochs=20, learning_rate=3e-3, log_std=-1.0),
        8192: PPOTuning(steps_per_update=256, log_std=-1.0, obs_stats="fixed"),
    },
)
