"""Recipe of random-walker. The loss sees no reward."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="random-walker",
        policy=POLICY,
        loss=LossSettings(window=512),
        lifetime=LifetimeSettings(64, updates=32, minibatch=64, update_epochs=8, scoring_episodes=4, **ANNEALED),
        evolution=replace(EVOLUTION, horizon=500),
    ),
    paper_sizes=(128, 256),
    ppo={
        2048: PPOTuning(128, minibatch=128, learning_rate=3e-3, learning_rate_end=0.0, log_std=-1.0, obs_stats="fixed"),
        8192: PPOTuning(minibatch=64, learning_rate=3e-4, log_std=-1.0, obs_stats="fixed"),
    },
)
