"""Recipe of fetch-reach. The loss sees no reward: the target is observed."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY, TARGET_ONLY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="fetch-reach",
        policy=POLICY,
        loss=LossSettings(window=384, temporal="none", memory=0, hidden=9),
        lifetime=LifetimeSettings(32, updates=12, update_epochs=12, replay=True, scoring_episodes=2, **ANNEALED),
        evolution=replace(EVOLUTION, epochs=80, noise_vectors=64, lifetimes=64, **TARGET_ONLY),
    ),
    paper_sizes=(32, 256),
    ppo={
        1024: PPOTuning(steps_per_update=256, update_epochs=20, learning_rate=3e-3, log_std=-1.0),
        8192: PPOTuning(steps_per_update=256, log_std=-1.0, obs_stats="fixed"),
    },
)
