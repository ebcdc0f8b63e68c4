"""Recipe of point-reach."""

from epg.recipes.base import PPOTuning, Recipe
from epg.settings import EvolutionSettings, LifetimeSettings, PolicySettings, Settings

RECIPE = Recipe(
    laptop=Settings(
        family="point-reach",
        policy=PolicySettings(log_std=-0.5),
        lifetime=LifetimeSettings(updates=32, learning_rate=5e-3, scoring_episodes=8),
        evolution=EvolutionSettings(
            epochs=100, lifetimes=128, step_size=0.02, step_size_end=0.005, anneal_epochs=100, betas=(0.9, 0.99)
        ),
    ),
    ppo={1024: PPOTuning(steps_per_update=128, update_epochs=20, learning_rate=5e-4)},
)
