"""Recipe of goal-ant and its variants. The loss sees the reward, in the paper preset also the goal (section 4.2)."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, BOTH_DIRECTIONS, EVOLUTION, POLICY
from epg.settings import LifetimeSettings, LossSettings, MamlSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="goal-ant",
        policy=POLICY,
        loss=LossSettings(window=640, inputs=("reward",), modulation="reward", temporal="none", memory=0, hidden=18),
        lifetime=LifetimeSettings(64, updates=32, minibatch=64, update_epochs=4, scoring_episodes=2, **ANNEALED),
        evolution=replace(EVOLUTION, **BOTH_DIRECTIONS),
    ),
    paper_inputs=("reward", "task-features"),
    paper_sizes=(32, 512),
    maml=MamlSettings(batch_steps=8192, policy=POLICY),  # the batch of Fig. 18; not searched
    ppo={
        2048: PPOTuning(256, minibatch=64, learning_rate=3e-3, learning_rate_end=0.0, log_std=0.0, obs_stats="fixed"),
        8192: PPOTuning(learning_rate=3e-4, log_std=-1.0),
    },
)
