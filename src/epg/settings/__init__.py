"""Settings of an evolution: validated when built, written into every run. No JAX here.

One file per section. The command line, the report and the figures read settings without loading JAX.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from epg.core.errors import require
from epg.settings.baselines import MamlSettings, RL2Settings
from epg.settings.codec import flat, from_dict, to_dict, with_values
from epg.settings.evolution import EvolutionSettings, TaskSharing
from epg.settings.guidance import GuidanceSettings
from epg.settings.lifetime import LifetimeSettings, UnstretchedLifetime
from epg.settings.loss import LossInput, LossSettings
from epg.settings.policy import PolicySettings
from epg.settings.ppo import PPOSettings

__all__ = [
    "EvolutionSettings",
    "EvolveInit",
    "GuidanceSettings",
    "LifetimeSettings",
    "LossInput",
    "LossSettings",
    "MamlSettings",
    "PPOSettings",
    "PolicySettings",
    "RL2Settings",
    "Settings",
    "TaskSharing",
    "UnstretchedLifetime",
    "flat",
    "from_dict",
    "to_dict",
    "with_values",
]

EvolveInit = Literal["none", "epg", "ppo"]


@dataclass(frozen=True)
class Settings:
    """All settings of an evolution: the content of a run's `config.json`."""

    family: str
    """Name of a registered family, or `module:attribute`."""
    seed: int = 0
    """Seed from which every random number of the run is derived."""
    evolve_init: EvolveInit = "none"
    """Whether the policy's initial parameters evolve: none, they are drawn fresh in every lifetime; epg, beside the
    loss (EPG+I); ppo, alone, and PPO trains from them (PPO+I)."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    loss: LossSettings = field(default_factory=LossSettings)
    lifetime: LifetimeSettings = field(default_factory=LifetimeSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    ppo: PPOSettings = field(default_factory=PPOSettings)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")
        both = self.evolves_init and self.evolution.pool
        require(not both, "evolve_init needs evolution.pool 0: policies start from one or from the other.")
        plain = self.guidance.learner == "none" and not self.lifetime.replay
        require(self.has_loss or plain, "evolve_init ppo needs guidance.learner none and no lifetime.replay.")
        require(
            self.evolution.evolves == "all" or self.loss.init == "target-action",
            "evolution.evolves target needs loss.init target-action: other losses have no target action.",
        )
        require(
            not self.lifetime.replay or self.guidance.learner == "none",
            "lifetime.replay needs guidance.learner none: a policy gradient needs the newest transitions.",
        )
        require(
            self.loss.window >= self.lifetime.steps_per_update,
            f"loss.window ({self.loss.window}) must be at least "
            f"lifetime.steps_per_update ({self.lifetime.steps_per_update}).",
        )

    @property
    def has_loss(self) -> bool:
        """Whether a loss evolves: always, but for PPO+I."""
        return self.evolve_init != "ppo"

    @property
    def evolves_init(self) -> bool:
        """Whether the policy's initial parameters evolve."""
        return self.evolve_init != "none"
