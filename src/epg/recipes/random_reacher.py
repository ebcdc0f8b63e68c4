"""Recipe of random-reacher. The loss sees no reward: the target is observed."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY, TARGET_ONLY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="random-reacher",
        policy=POLICY,
        loss=LossSettings(window=2048, inputs=("observation-products",), temporal="none", memory=0, hidden=5),
        lifetime=LifetimeSettings(64, updates=32, update_epochs=12, replay=True, scoring_episodes=8, **ANNEALED),
        evolution=replace(EVOLUTION, epochs=100, **TARGET_ONLY),
    ),
    paper_sizes=(128, 512),
    ppo={
        2048: PPOTuning(256, update_epochs=20, learning_rate=3e-3, log_std=-1.0, obs_stats="fixed"),
        8192: PPOTuning(steps_per_update=256, update_epochs=20, log_std=0.0),
    },
)
