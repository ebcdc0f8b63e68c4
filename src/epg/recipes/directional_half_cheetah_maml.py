"""Recipe of directional-half-cheetah@maml: the loss is that of directional-half-cheetah, MAML that of its paper."""

from dataclasses import replace

from epg.recipes import directional_half_cheetah
from epg.settings import MamlSettings, PolicySettings

# Network, noise, inner step and batch are those of the code of the MAML paper; its 40 tasks and TRPO are not.
MAML = MamlSettings(
    tasks=20,
    batch_steps=4000,
    inner_step_size=0.1,
    policy=PolicySettings(hidden=(100, 100), activation="relu", log_std=0.0),
)

RECIPE = replace(directional_half_cheetah.RECIPE, ppo={}, maml=MAML)
