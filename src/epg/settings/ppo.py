"""Settings of PPO and REINFORCE, as baselines and as guidance."""

from dataclasses import dataclass

from epg.core.errors import require
from epg.settings.checks import require_positive


@dataclass(frozen=True)
class PPOSettings:
    """PPO and REINFORCE (which uses the discount and the entropy weight), as baselines and as guidance."""

    discount: float = 0.99
    """Discount factor (gamma)."""
    gae_lambda: float = 0.95
    """Lambda of generalized advantage estimation."""
    clip: float = 0.2
    """Clipping range of the probability ratio."""
    kl_weight: float = 0.001
    """Weight of the KL penalty towards the policy that acted."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus."""

    def __post_init__(self) -> None:
        require(0 < self.discount < 1, f"ppo.discount must lie between 0 and 1, not {self.discount}.")
        require(0 <= self.gae_lambda <= 1, f"ppo.gae_lambda must lie in [0, 1], not {self.gae_lambda}.")
        require_positive(self, "ppo", "clip")
        for name in ("kl_weight", "entropy_weight"):
            require(getattr(self, name) >= 0, f"ppo.{name} must not be negative.")
