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
from epg.settings.lifetime import LifetimeSettings
from epg.settings.loss import LossInput, LossSettings
from epg.settings.policy import PolicySettings
from epg.settings.ppo import PPOSettings

__all__ = [
    "EvolutionSettings",
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
    "flat",
    "from_dict",
    "to_dict",
    "with_values",
]


@dataclass(frozen=True)
class Settings:
    """All settings of an evolution: the content of a run's `config.json`."""

    family: str
    """Name of a registered family, or `module:attribute`."""
    seed: int = 0
    """Seed from which every random number of the run is derived."""
    learner: Literal["learned", "ppo"] = "learned"
    """What trains policies: the learned loss, or PPO, for which only the initial policy evolves (PPO+I)."""
    evolve_init: bool = False
    """Whether the policy's initial parameters evolve, too (EPG+I), instead of being drawn fresh in every lifetime."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    loss: LossSettings = field(default_factory=LossSettings)
    lifetime: LifetimeSettings = field(default_factory=LifetimeSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    ppo: PPOSettings = field(default_factory=PPOSettings)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")
        both = self.evolve_init and self.evolution.pool
        require(not both, "evolve_init needs evolution.pool 0: policies start from one or from the other.")
        if self.learner == "ppo":
            require(self.evolve_init, "learner ppo needs evolve_init: PPO has no loss to evolve.")
            plain = self.guidance.learner == "none" and not self.lifetime.replay
            require(plain, "learner ppo needs guidance.learner none and no lifetime.replay.")
        require(
            not self.lifetime.replay or self.guidance.learner == "none",
            "lifetime.replay needs guidance.learner none: a policy gradient needs the newest transitions.",
        )
        require(
            self.loss.window >= self.lifetime.steps_per_update,
            f"loss.window ({self.loss.window}) must be at least "
            f"lifetime.steps_per_update ({self.lifetime.steps_per_update}).",
        )
