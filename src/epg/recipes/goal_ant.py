"""Recipe of goal-ant and its variants. The loss sees the reward, in the paper preset also the goal (section 4.2)."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, BOTH_DIRECTIONS, EVOLUTION, LONG_STEPS, POLICY
from epg.settings import LifetimeSettings, LossSettings, MamlSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="goal-ant",
        policy=POLICY,
        loss=LossSettings(
            window=640,
            inputs=("reward",),
            modulation="lasting-reward",
            mixes=4,  # the bearing of the goal in the world, and seen from the ant
            temporal="none",
            memory=0,
            hidden=17,
        ),
        lifetime=LifetimeSettings(32, updates=20, update_epochs=12, replay=True, scoring_episodes=2, **ANNEALED),
        # Many epochs: a search of linear policies leaps for 300 steps before it walks (docs/lab.md).
        evolution=replace(EVOLUTION, **BOTH_DIRECTIONS | LONG_STEPS, epochs=500, evolves="target"),
    ),
    paper_inputs=("reward", "task-features"),
    paper_sizes=(32, 512),
    maml=MamlSettings(batch_steps=8192, policy=POLICY),  # the batch of Fig. 18; not searched
    ppo={
        2048: PPOTuning(256, minibatch=64, learning_rate=3e-3, learning_rate_end=0.0, log_std=0.0, obs_stats="fixed"),
        8192: PPOTuning(learning_rate=3e-4, log_std=-1.0),
    },
)
