"""Recipe of random-hopper. The loss sees no reward."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, ARS, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="random-hopper",
        policy=POLICY,
        loss=LossSettings(window=640, temporal="none", memory=0, hidden=8),
        lifetime=LifetimeSettings(32, updates=20, update_epochs=12, replay=True, scoring_episodes=2, **ANNEALED),
        evolution=replace(EVOLUTION, epochs=200, noise_vectors=64, horizon=500, **ARS),
    ),
    paper_sizes=(64, 128),
    ppo={
        1024: PPOTuning(steps_per_update=128, learning_rate=3e-3, log_std=0.0, obs_stats="fixed"),
        2048: PPOTuning(256, update_epochs=20, entropy_weight=0.01, log_std=0.0, obs_stats="fixed"),
        8192: PPOTuning(steps_per_update=256, learning_rate_end=0.0, log_std=0.0),
    },
)
