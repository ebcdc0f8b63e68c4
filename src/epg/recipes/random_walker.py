"""Recipe of random-walker. The loss sees no reward."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY, TARGET_ONLY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="random-walker",
        policy=POLICY,
        loss=LossSettings(window=640, temporal="none", memory=0, hidden=14),
        lifetime=LifetimeSettings(32, updates=20, update_epochs=12, replay=True, scoring_episodes=2, **ANNEALED),
        evolution=replace(EVOLUTION, epochs=150, noise_vectors=64, horizon=500, **TARGET_ONLY),
    ),
    paper_sizes=(128, 256),
    ppo={
        2048: PPOTuning(128, minibatch=128, learning_rate=3e-3, learning_rate_end=0.0, log_std=-1.0, obs_stats="fixed"),
        8192: PPOTuning(minibatch=64, learning_rate=3e-4, log_std=-1.0, obs_stats="fixed"),
    },
)
