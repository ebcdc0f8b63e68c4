"""Settings of guidance."""

from dataclasses import dataclass
from typing import Literal

from epg.core.errors import require


@dataclass(frozen=True)
class GuidanceSettings:
    """Guidance: a policy-gradient loss mixed into the learned one and annealed away (Eq. 10)."""

    learner: Literal["none", "ppo", "reinforce"] = "none"
    """Which policy-gradient loss guides."""
    epochs: int = 500
    """Epochs over which alpha falls linearly from 1 to 0."""

    def __post_init__(self) -> None:
        require(self.epochs > 0, f"guidance.epochs must be above zero, not {self.epochs}.")

    def alpha(self, epoch: int) -> float:
        """Return alpha at `epoch`: 1 at epoch 0, exactly 0 from `epochs` on, always 0 without guidance."""
        if self.learner == "none":
            return 0.0
        return max(0.0, 1.0 - epoch / self.epochs)
