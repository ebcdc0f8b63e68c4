"""Recipe of random-reacher. The loss sees no reward: the target is observed."""

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="random-reacher",
        policy=POLICY,
        loss=LossSettings(window=128, inputs=("observation-products",)),
        lifetime=LifetimeSettings(128, updates=16, update_epochs=8, scoring_episodes=8, **ANNEALED),
        evolution=EVOLUTION,
    ),
    paper_sizes=(128, 512),
    ppo={
        2048: PPOTuning(256, update_epochs=20, learning_rate=3e-3, log_std=-1.0, obs_stats="fixed"),
        8192: PPOTuning(steps_per_update=256, update_epochs=20, log_std=0.0),
    },
)
