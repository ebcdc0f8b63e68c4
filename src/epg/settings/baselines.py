"""Settings of the meta-learned baselines, MAML and RL²."""

from dataclasses import dataclass, field

from epg.core.errors import require
from epg.settings.checks import require_positive, require_small
from epg.settings.policy import PolicySettings


@dataclass(frozen=True)
class MamlSettings:
    """MAML (Finn et al. 2017): an initial policy from which few policy-gradient steps are enough."""

    env_steps: int = 0
    """Budget of environment steps."""
    tasks: int = 20
    """Tasks per outer step."""
    batch_steps: int = 2048
    """Environment steps of one inner update."""
    inner_updates: int = 1
    """Inner updates through which the outer gradient is taken."""
    inner_step_size: float = 0.1
    """Step size of the inner gradient descent."""
    first_order: bool = False
    """Whether the outer gradient takes the inner gradient as constant (first-order MAML)."""
    outer_step_size: float = 1e-3
    """Step size of the outer Adam."""
    outer_epochs: int = 5
    """Outer gradient steps on the data of one outer step (PPO)."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """The policy; its observation statistics are those of all training, frozen with it."""

    def __post_init__(self) -> None:
        names = "tasks", "batch_steps", "inner_updates", "inner_step_size", "outer_step_size", "outer_epochs"
        require_positive(self, "maml", *names)
        require_small("maml: tasks x batch_steps x inner_updates", self.tasks, self.batch_steps, self.inner_updates)
        require(self.env_steps >= 0, f"maml.env_steps must not be negative, not {self.env_steps}.")


@dataclass(frozen=True)
class RL2Settings:
    """RL² (Duan et al. 2016): a recurrent policy that learns a task within its state."""

    env_steps: int = 0
    """Budget of environment steps."""
    lifetimes: int = 64
    """Lifetimes per outer step, each on a task of its own."""
    lifetime_steps: int = 2048
    """Environment steps of a lifetime."""
    units: int = 64
    """Units of the GRU."""
    bptt_steps: int = 128
    """Most steps through which gradients are propagated (truncated backpropagation through time)."""
    update_epochs: int = 4
    """Epochs over the data of one outer step."""
    minibatches: int = 4
    """Gradient steps per epoch."""
    step_size: float = 1e-3
    """Step size of the outer Adam."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """The layers above the GRU; observation statistics are those of all training, frozen with it."""

    def __post_init__(self) -> None:
        names = "lifetimes", "lifetime_steps", "units", "bptt_steps", "update_epochs", "minibatches", "step_size"
        require_positive(self, "rl2", *names)
        require_small("rl2: lifetimes x lifetime_steps", self.lifetimes, self.lifetime_steps)
        for width in (self.units, *self.policy.hidden[:1]):
            require_small("rl2.units", 3 * self.units, width)  # of a GRU's three gates, and of the layer above
        require(self.env_steps >= 0, f"rl2.env_steps must not be negative, not {self.env_steps}.")
