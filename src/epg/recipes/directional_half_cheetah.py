"""Recipe of directional-half-cheetah. The loss sees the reward, not the direction."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, BOTH_DIRECTIONS, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, MamlSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="directional-half-cheetah",
        policy=POLICY,
        loss=LossSettings(window=640, inputs=("reward",), modulation="reward", temporal="none", memory=0),
        lifetime=LifetimeSettings(64, updates=10, update_epochs=8, replay=True, scoring_episodes=1, **ANNEALED),
        evolution=replace(EVOLUTION, epochs=300, **BOTH_DIRECTIONS),
    ),
    paper_inputs=("reward",),
    paper_sizes=(32, 256),
    maml=MamlSettings(batch_steps=4000, policy=POLICY),  # the batch of Fig. 9; not searched
    ppo={
        1536: PPOTuning(steps_per_update=128, learning_rate=3e-3, learning_rate_end=0.0),
        8192: PPOTuning(steps_per_update=256, learning_rate=3e-3, learning_rate_end=0.0),
    },
)
