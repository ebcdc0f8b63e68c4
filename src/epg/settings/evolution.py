"""Settings of the outer loop."""

import math
from dataclasses import dataclass
from typing import Literal

from epg.core.errors import require
from epg.settings.checks import require_positive

LARGEST_POOL = 2**12  # policies: 100 MB of the paper's
TaskSharing = Literal["all", "pair", "none"]
Evolves = Literal["all", "target"]


@dataclass(frozen=True)
class EvolutionSettings:
    """The outer loop: an evolution strategy over phi (Algorithm 1)."""

    epochs: int = 100
    """Outer steps."""
    noise_vectors: int = 32
    """V: perturbed losses per epoch (population size)."""
    lifetimes: int = 64
    """W: lifetimes per epoch; each loss is evaluated on W / V tasks."""
    task_sharing: TaskSharing = "all"
    """Which losses of an epoch share tasks and random numbers: all (compared per task), the two of an antithetic pair
    (compared with each other), or none (the paper, without antithetic pairs)."""
    rule: Literal["adam", "ars"] = "adam"
    """How fitness moves phi: adam, by ranks and Adam (the paper); ars, as augmented random search does, by the returns
    of the better half of the pairs, with one scale for all parameters."""
    sigma: float = 0.05
    """Standard deviation of the noise on phi."""
    evolves: Evolves = "all"
    """Which part of phi evolves: all, or the target action only. Then every loss of the population is the distance to
    one target action, a function of observations, task features and mixes. For loss.init target-action."""
    survival: float = 0.0
    """What a loss whose policies last to the time limit is worth beyond their return; a share of it for a share of the
    limit. It moves phi only: fitness is reported without it. Against policies that leap and fall."""
    step_size: float = 0.02
    """Outer step size at the first epoch."""
    step_size_end: float = 0.02
    """Outer step size after annealing."""
    anneal_epochs: int = 1
    """Epochs over which the step size is annealed linearly."""
    betas: tuple[float, float] = (0.0, 0.99)
    """Of the outer Adam: how much of the last step is kept, and how slowly the gradient's scale is averaged."""
    l2: float = 0.0
    """Weight of the L2 penalty on phi."""
    horizon: int | None = None
    """Steps at which episodes are cut during evolution, to save scoring time; by default the family's horizon."""
    pool: int = 0
    """Policies of earlier epochs' lifetimes that are kept; half of the lifetimes begin with one of them (Fig. 12B)."""
    shard: int = 32
    """Lifetimes evaluated together: the unit of work. It is part of the result's identity; the number of processes
    is not."""

    def __post_init__(self) -> None:
        names = (
            "epochs",
            "noise_vectors",
            "lifetimes",
            "sigma",
            "step_size",
            "step_size_end",
            "anneal_epochs",
            "shard",
        )
        require_positive(self, "evolution", *names)
        require(self.noise_vectors > 1, "evolution.noise_vectors must be at least 2: ranks need a comparison.")
        require(
            self.noise_vectors % 2 == 0,  # for pairs; evosax requires it without pairs too
            f"evolution.noise_vectors ({self.noise_vectors}) must be even.",
        )
        for name in ("noise_vectors", "shard"):
            require(
                self.lifetimes % getattr(self, name) == 0,
                f"evolution.lifetimes ({self.lifetimes}) must be a multiple of "
                f"evolution.{name} ({getattr(self, name)}).",
            )
        require(self.rule != "ars" or self.antithetic, "evolution.rule ars needs evolution.task_sharing pair or all.")
        require(0 <= self.pool <= LARGEST_POOL, f"evolution.pool must lie in [0, {LARGEST_POOL}], not {self.pool}.")
        require(self.horizon is None or self.horizon > 0, f"evolution.horizon must be above zero, not {self.horizon}.")
        first, second = self.betas
        require(0 <= first < 1, f"The first of evolution.betas must lie in [0, 1), not {first}.")
        require(0 < second < 1, f"The second of evolution.betas must lie between 0 and 1, not {second}.")
        for name in ("l2", "survival"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"evolution.{name} must be finite and not negative, not {value}.")

    @property
    def antithetic(self) -> bool:
        """Whether noise vectors come in pairs of opposite sign."""
        return self.task_sharing != "none"

    @property
    def tasks_per_loss(self) -> int:
        """Tasks on which each loss is evaluated in an epoch, W / V."""
        return self.lifetimes // self.noise_vectors

    @property
    def balanced(self) -> int:
        """How many consecutive tasks are spread over the family's orbit (directions, signs), if it declares one."""
        return self.tasks_per_loss if self.task_sharing != "none" else 0
