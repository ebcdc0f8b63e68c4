"""Settings of a lifetime."""

import math
from dataclasses import dataclass

from epg.core.errors import require
from epg.settings.checks import require_positive, require_small


@dataclass(frozen=True)
class LifetimeSettings:
    """One inner loop: a fresh policy trained on one task, then scored (Algorithm 2)."""

    steps_per_update: int = 32
    """M: environment steps between two updates."""
    updates: int = 64
    """Updates in a lifetime; U = M x updates steps."""
    minibatch: int = 32
    """Transitions per gradient step; the newest M are shuffled and each is used once per epoch of an update."""
    update_epochs: int = 1
    """Epochs over the newest M transitions in one update."""
    replay: bool = False
    """Whether the learned loss draws minibatches from the whole window instead of the newest M transitions (paper)."""
    learning_rate: float = 3e-3
    """Step size of the inner Adam at the first update."""
    learning_rate_end: float | None = None
    """Step size that a linear schedule reaches at the end of the lifetime; by default it is constant."""
    scoring_episodes: int = 3
    """Trajectories of the final policy whose mean return is the fitness."""

    def __post_init__(self) -> None:
        names = "steps_per_update", "updates", "minibatch", "update_epochs", "learning_rate", "scoring_episodes"
        require_positive(self, "lifetime", *names)
        require_small("lifetime.updates", self.updates, self.steps_per_update)
        require_small("lifetime.scoring_episodes", self.scoring_episodes, 2**10)
        require(
            self.learning_rate_end is None or 0 <= self.learning_rate_end < math.inf,
            f"lifetime.learning_rate_end must not be negative, not {self.learning_rate_end}.",
        )
        require(
            self.steps_per_update % self.minibatch == 0,
            f"lifetime.steps_per_update ({self.steps_per_update}) must be a multiple of "
            f"lifetime.minibatch ({self.minibatch}).",
        )

    @property
    def annealed(self) -> int:
        """Updates after which the schedule of the step size has reached its end."""
        return self.updates

    @property
    def steps(self) -> int:
        """U: environment steps of training in a lifetime."""
        return self.steps_per_update * self.updates


@dataclass(frozen=True)
class UnstretchedLifetime(LifetimeSettings):
    """A lifetime of another length than the evolved one, with a schedule that is not stretched to it."""

    anneal_updates: int = 1
    """Updates after which the schedule has reached its end."""

    @property
    def annealed(self) -> int:
        """Updates after which the schedule of the step size has reached its end."""
        return self.anneal_updates
