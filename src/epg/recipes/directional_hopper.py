"""Recipe of directional-hopper. The loss sees the reward, not the direction."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, ARS, BOTH_DIRECTIONS, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="directional-hopper",
        policy=POLICY,
        loss=LossSettings(window=640, inputs=("reward",), modulation="reward", temporal="none", memory=0, hidden=8),
        lifetime=LifetimeSettings(32, updates=20, update_epochs=12, replay=True, scoring_episodes=2, **ANNEALED),
        evolution=replace(EVOLUTION, epochs=150, horizon=500, **BOTH_DIRECTIONS, **ARS),
    ),
    paper_inputs=("reward",),
    paper_sizes=(64, 128),
    ppo={
        1536: PPOTuning(log_std=0.0, obs_stats="fixed"),
        8192: PPOTuning(steps_per_update=256, learning_rate_end=0.0, log_std=0.0, obs_stats="fixed"),
    },
)
