"""Recipe of goal-ant and its variants. The loss sees the reward and, as in section 4.2, where the goal is."""

from dataclasses import replace

from epg.recipes.base import PPOTuning, Recipe
from epg.recipes.mujoco import ANNEALED, EVOLUTION, POLICY, TARGET_ONLY
from epg.settings import LifetimeSettings, LossSettings, MamlSettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="goal-ant",
        policy=POLICY,
        loss=LossSettings(
            window=640,
            inputs=("reward", "task-features"),
            modulation="task-features",
            mixes=3,
            temporal="none",
            memory=0,
            hidden=17,
        ),
        lifetime=LifetimeSettings(32, updates=20, update_epochs=12, replay=True, scoring_episodes=1, **ANNEALED),
        # Little noise and a bonus for survival, or ants leap and fall for hundreds of epochs (docs/lab.md).
        evolution=replace(
            EVOLUTION,
            **TARGET_ONLY | {"sigma": 0.02, "step_size": 0.01, "step_size_end": 0.01},
            epochs=1500,
            survival=100.0,
        ),
    ),
    paper_inputs=("reward", "task-features"),
    paper_sizes=(32, 512),
    maml=MamlSettings(batch_steps=8192, policy=POLICY),  # the batch of Fig. 18; not searched
    ppo={
        2048: PPOTuning(256, minibatch=64, learning_rate=3e-3, learning_rate_end=0.0, log_std=0.0, obs_stats="fixed"),
        8192: PPOTuning(learning_rate=3e-4, log_std=-1.0),
    },
)
