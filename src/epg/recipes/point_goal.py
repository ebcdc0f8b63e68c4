"""Recipe of point-goal."""

from epg.recipes.base import PPOTuning, Recipe
from epg.settings import EvolutionSettings, LifetimeSettings, LossSettings, MamlSettings, PolicySettings, Settings

POLICY = PolicySettings(log_std=-0.5)

RECIPE = Recipe(
    laptop=Settings(
        family="point-goal",
        policy=POLICY,
        loss=LossSettings(window=1024, inputs=("reward",), modulation="reward", mixes=16, temporal="none", memory=0),
        lifetime=LifetimeSettings(
            updates=32, update_epochs=6, replay=True, learning_rate=0.01, learning_rate_end=0.0, scoring_episodes=8
        ),
        evolution=EvolutionSettings(
            epochs=60, lifetimes=128, step_size=0.03, step_size_end=0.01, anneal_epochs=60, betas=(0.9, 0.99)
        ),
    ),
    paper_inputs=("reward",),
    ppo={2048: PPOTuning(steps_per_update=128, learning_rate=6e-3)},
    maml=MamlSettings(batch_steps=512, inner_step_size=0.3, outer_step_size=3e-3, policy=POLICY),
)
