"""Settings of the policy."""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

from epg.core.errors import require
from epg.settings.checks import LARGEST_SIZE, require_small


@dataclass(frozen=True)
class PolicySettings:
    """The policy: an MLP with a Gaussian output and a learned log-std vector, or a categorical output."""

    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Literal["tanh", "relu", "elu", "silu"] = "tanh"
    """Activation of the hidden layers."""
    log_std: float = 0.0
    """Initial log standard deviation of a Gaussian policy."""
    obs_stats: Literal["running", "fixed"] = "running"
    """Observation statistics: running (this lifetime) or fixed (measured once per family)."""

    def __post_init__(self) -> None:
        require(all(0 < width <= LARGEST_SIZE for width in self.hidden), "policy.hidden needs widths above zero.")
        require(len(self.hidden) <= 64, f"policy.hidden has {len(self.hidden)} layers: at most 64 are possible.")
        for widths in itertools.pairwise((1, *self.hidden, 1)):
            require_small("policy.hidden", *widths)
        require(math.isfinite(self.log_std), f"policy.log_std must be finite, not {self.log_std}.")
