"""Recipe of signed-half-cheetah. The loss sees no reward: transitions tell what the motors do."""

from dataclasses import replace

from epg.recipes import directional_half_cheetah
from epg.settings import LossSettings, Settings

_DIRECTIONAL: Settings = directional_half_cheetah.RECIPE.laptop

# PPO is that of directional-half-cheetah: a policy that knows nothing learns with reversed motors as with others.
RECIPE = replace(
    directional_half_cheetah.RECIPE,
    laptop=replace(
        _DIRECTIONAL,
        family="signed-half-cheetah",
        loss=LossSettings(window=640, modulation="transitions", temporal="none", memory=0),
    ),
    paper_inputs=(),
    maml=None,
)
