"""Recipe of point-goal."""

from epg.recipes.base import PPOTuning, Recipe
from epg.settings import EvolutionSettings, LifetimeSettings, LossSettings, PolicySettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="point-goal",
        policy=PolicySettings(log_std=-0.5),
        loss=LossSettings(inputs=("reward", "reward-products"), memory=0, init_temporal="reward-correlation"),
        lifetime=LifetimeSettings(updates=64, minibatch=16, learning_rate=4e-3, scoring_episodes=8),
        evolution=EvolutionSettings(
            epochs=50, lifetimes=128, step_size=0.03, step_size_end=0.01, anneal_epochs=50, beta1=0.9
        ),
    ),
    paper_inputs=("reward",),
    ppo={2048: PPOTuning(steps_per_update=128, learning_rate=6e-3)},
)
