"""Every setting of an evolution or a lifetime, validated when built and written into every run.

No JAX here: the command line, the report and the figures read settings without loading it.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from epg.words.errors import BadInput

T = TypeVar("T")

LARGEST = 3e38  # a little below the largest float32, in which everything is computed
LARGEST_SIZE = 2**31 - 1  # of an array's axis, or a count


def require(condition: bool, sentence: str) -> None:
    """Raise BadInput with `sentence` unless `condition` holds."""
    if not condition:
        raise BadInput(sentence)


def _require_positive(owner: object, prefix: str, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        require(math.isfinite(value) and value > 0, f"{prefix}.{name} must be above zero, not {value}.")
        require(type(value) is float or value <= LARGEST_SIZE, f"{prefix}.{name} is too large: {value}.")


@dataclass(frozen=True)
class Spaces:
    """Sizes of what a policy sees and does."""

    observation: int
    """Length of the observation vector."""
    action: int
    """Length of the action vector, or the number of choices when discrete."""
    discrete: bool = False
    """Whether an action is one of `action` choices instead of a vector."""
    features: int = 0
    """Length of the task features that a loss may ask for (0: the family has none)."""

    @property
    def policy_output(self) -> int:
        """Length of what the loss sees of the policy: mean and log-std, or probabilities."""
        return self.action if self.discrete else 2 * self.action


@dataclass(frozen=True)
class PolicySettings:
    """The policy: an MLP, Gaussian with a learned log-std vector, or categorical."""

    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer."""
    activation: Literal["tanh", "relu", "elu", "silu"] = "tanh"
    """Activation of the hidden layers."""
    log_std: float = 0.0
    """Initial log standard deviation of a Gaussian policy."""
    normalise: Literal["lifetime", "family"] = "lifetime"
    """By what observations are normalised: what the lifetime has seen so far, or what is usual in the family."""
    usual_mean: tuple[float, ...] = ()
    """What is usual in the family: measured when an evolution begins, unless given (normalise family)."""
    usual_deviation: tuple[float, ...] = ()
    """Its deviation."""

    def __post_init__(self) -> None:
        require(all(width > 0 for width in self.hidden), "policy.hidden needs widths above zero.")
        require(math.isfinite(self.log_std), f"policy.log_std must be finite, not {self.log_std}.")
        require(
            len(self.usual_mean) == len(self.usual_deviation),
            "policy.usual_mean and policy.usual_deviation need one number per observation each.",
        )
        require(
            self.normalise == "family" or not self.usual_mean,
            "policy.usual_mean needs policy.normalise family: nothing else looks at it.",
        )
        require(all(it > 0 for it in self.usual_deviation), "policy.usual_deviation needs numbers above zero.")

    @property
    def to_be_measured(self) -> bool:
        """Whether observations are normalised by what is usual, and nobody knows yet what is."""
        return self.normalise == "family" and not self.usual_mean


@dataclass(frozen=True)
class LossSettings:
    """The learned loss: temporal convolutions over the window, memory, dense head (paper section 4)."""

    window: int = 128
    """N: how many of the newest transitions the loss sees."""
    reward: bool = False
    """Whether the loss sees rewards. Without it nothing about the reward can reach an update."""
    products: bool = False
    """Whether the loss also sees reward times observation and reward times the fading trace of past actions."""
    pairs: bool = False
    """Whether the head also sees the products of observations, two at a time (what turns with a joint's angle)."""
    task_features: bool = False
    """Whether the loss sees the features of the task that the policy does not (GoalAnt's goal)."""
    progress: bool = False
    """Whether the loss sees how much of the lifetime has passed."""
    memory: int = 32
    """Units of the tanh memory, trained with the policy."""
    kernels: tuple[int, ...] = (8, 4)
    """Kernel length of each temporal convolution."""
    strides: tuple[int, ...] = (7, 2)
    """Stride of each temporal convolution."""
    channels: int = 10
    """Output channels of each temporal convolution."""
    context: int = 32
    """Units of the layer that closes the temporal part."""
    hidden: int = 16
    """Units of the head's hidden layer."""
    pooling: Literal["mean", "flatten"] = "mean"
    """How time is removed before the context layer: mean keeps the parameter count independent of N."""
    init: Literal["target-action", "plain"] = "target-action"
    """Initial weights: plain random, or a loss that starts as the distance to a target action near zero."""
    init_scale: float = 0.02
    """Deviation of the target action's initial weights on all the head sees but the context (target-action only)."""
    init_context_scale: float = 0.02
    """Deviation of the target action's initial weights on the context (target-action only)."""
    init_temporal: Literal["plain", "correlation"] = "plain"
    """Initial temporal part: plain random, or one that carries the window's mean of the products (needs them)."""
    init_gain: float = 0.0
    """Initial weight of the target action on the reward's correlation with past actions (correlation only)."""
    init_switch: int | None = None
    """Index of an observation whose correlation with the reward chooses between two target actions (correlation)."""
    init_sides: Literal[1, 2, 4] = 1
    """Target actions to search for, one for each part of the family's orbit; which holds, is learnt (correlation)."""
    init_gate: float = 1.5
    """How far targets that do not hold are pushed away: silent while the policy is within twice as much of them."""

    def __post_init__(self) -> None:
        _require_positive(self, "loss", "window", "memory", "channels", "context", "hidden", "init_gate")
        for name in ("init_scale", "init_context_scale"):
            require(getattr(self, name) >= 0, f"loss.{name} must not be negative, not {getattr(self, name)}.")
        require(not self.products or self.reward, "loss.products needs loss.reward: they multiply the reward.")
        require(
            self.init_temporal == "plain" or self.products,
            "loss.init_temporal correlation needs loss.products: it carries their mean.",
        )
        require(
            self.init_switch is None or (self.init_temporal == "correlation" and self.init_switch >= 0),
            "loss.init_switch needs loss.init_temporal correlation, and the index of an observation.",
        )
        require(
            self.init_sides == 1 or (self.init_temporal == "correlation" and self.init_switch is None),
            "loss.init_sides needs loss.init_temporal correlation, and no loss.init_switch.",
        )
        require(
            self.channels >= 2 * self.switches and self.context >= 2 * self.switches,
            f"loss.channels and loss.context must be at least {2 * self.switches} for {self.sides} sides.",
        )
        require(
            len(self.kernels) == len(self.strides) and min(*self.kernels, *self.strides, 1) > 0,
            "loss.kernels and loss.strides need one positive number per convolution.",
        )
        require(self.frames > 0, f"loss.window of {self.window} is too short for its convolutions.")

    @property
    def sides(self) -> int:
        """Number of target actions that the target-action initialisation starts with."""
        return self.init_sides if self.init_switch is None else 2

    @property
    def switches(self) -> int:
        """Number of signs that tell those target actions apart."""
        return self.sides // 2

    @property
    def frames(self) -> int:
        """Length in time of the last convolution's output."""
        length = self.window
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            length = (length - kernel) // stride + 1 if length >= kernel else 0
        return length


@dataclass(frozen=True)
class LifetimeSettings:
    """One inner loop: a fresh policy trained on one task, then scored (Algorithm 2)."""

    steps_per_update: int = 32
    """M: environment steps between two updates."""
    updates: int = 64
    """Updates in a lifetime; U = M x updates steps."""
    minibatch: int = 32
    """Rows per gradient step; the newest M rows are shuffled and each is used once per pass."""
    passes: int = 1
    """Passes over the newest M rows in one update."""
    learning_rate: float = 3e-3
    """Step size of the inner Adam at the first update."""
    learning_rate_end: float | None = None
    """Step size at the last update, linear in between; by default it stays as it is."""
    scoring_episodes: int = 3
    """Trajectories of the final policy whose mean return is the fitness."""

    def __post_init__(self) -> None:
        _require_positive(
            self, "lifetime", "steps_per_update", "updates", "minibatch", "passes", "learning_rate", "scoring_episodes"
        )
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
    def steps(self) -> int:
        """U: environment steps of training in a lifetime."""
        return self.steps_per_update * self.updates


@dataclass(frozen=True)
class PolicyGradientSettings:
    """The hand-made losses, PPO and REINFORCE, as opponents and as guidance."""

    discount: float = 0.99
    """Discount of rewards (gamma)."""
    trace: float = 0.95
    """Decay of the advantage estimate (lambda of GAE)."""
    clip: float = 0.2
    """PPO's bound on the probability ratio."""
    kl_weight: float = 0.001
    """Weight of the KL penalty towards the acting policy."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus."""
    value_weight: float = 0.5
    """Weight of the value network's squared error."""
    value_hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer of the value network."""

    def __post_init__(self) -> None:
        require(0 < self.discount < 1, f"ppo.discount must lie between 0 and 1, not {self.discount}.")
        require(0 <= self.trace <= 1, f"ppo.trace must lie in [0, 1], not {self.trace}.")
        _require_positive(self, "ppo", "clip")
        for name in ("kl_weight", "entropy_weight", "value_weight"):
            require(getattr(self, name) >= 0, f"ppo.{name} must not be negative.")
        require(all(width > 0 for width in self.value_hidden), "ppo.value_hidden needs widths above zero.")


@dataclass(frozen=True)
class GuidanceSettings:
    """The hand-made loss beside the learned one, annealed away over the first epochs (Eq. 10)."""

    learner: Literal["none", "ppo", "reinforce"] = "none"
    """Which hand-made loss guides."""
    mode: Literal["blend", "add"] = "blend"
    """blend: (1 - alpha) L_phi + alpha L_pg, Eq. 10. add: L_phi + alpha L_pg."""
    epochs: int = 500
    """Epochs over which alpha falls linearly from 1 to 0."""

    def __post_init__(self) -> None:
        require(self.epochs > 0, f"guidance.epochs must be above zero, not {self.epochs}.")

    def alpha(self, epoch: int) -> float:
        """Return guidance at `epoch`: 1 at epoch 0, exactly 0 from `epochs` on, always 0 without a guide."""
        if self.learner == "none":
            return 0.0
        return max(0.0, 1.0 - epoch / self.epochs)


@dataclass(frozen=True)
class SearchSettings:
    """The search for a first target before evolution: target actions act themselves, and nothing is trained."""

    epochs: int = 0
    """Steps of the search, for each side of a switch (but see `turned`); 0: the first target is random."""
    noise_vectors: int = 64
    """Perturbed targets per step, in pairs of opposite sign, each pair with a task of its own."""
    sigma: float = 0.05
    """Standard deviation of the noise on the target's weights."""
    step_size: float = 0.03
    """Step size, in units of the deviation of the ranks."""
    starts: int = 1
    """Searches begun for each side; after a third of the steps only the best of them goes on."""
    turned: bool = False
    """Whether one search serves all sides: its target is turned to each, as the family says that its body turns."""

    def __post_init__(self) -> None:
        require(self.epochs >= 0, f"search.epochs must not be negative, not {self.epochs}.")
        _require_positive(self, "search", "noise_vectors", "sigma", "step_size", "starts")
        require(self.noise_vectors % 2 == 0, f"search.noise_vectors ({self.noise_vectors}) must be even.")
        require(
            self.starts == 1 or self.epochs >= 3,
            f"search.epochs ({self.epochs}) must be 3 or more with search.starts {self.starts}: a third decides.",
        )

    @property
    def trial(self) -> int:
        """Steps after which one of several starts is chosen."""
        return self.epochs // 3

    @property
    def steps(self) -> int:
        """Steps of one search, those of starts that are given up included."""
        return self.epochs + (self.starts - 1) * self.trial


Sharing = Literal["all", "pair", "none"]


@dataclass(frozen=True)
class EvolutionSettings:
    """The outer loop (Algorithm 1)."""

    epochs: int = 100
    """Outer steps."""
    noise_vectors: int = 32
    """V: perturbed losses per epoch."""
    lifetimes: int = 64
    """W: lifetimes per epoch; W / V tasks for each loss."""
    antithetic: bool = True
    """Whether noise vectors come in pairs of opposite sign."""
    common_tasks: bool = True
    """Whether every loss of an epoch meets the same tasks and random numbers, ranked within each task."""
    paired_tasks: bool = False
    """Whether common tasks are common only to the two losses of a pair, which are then compared with each other."""
    balanced_tasks: bool = True
    """Whether common tasks are spread evenly over directions and signs, in families that say how (their orbit)."""
    sigma: float = 0.05
    """Standard deviation of the noise on the loss parameters."""
    sigma_end: float | None = None
    """The same once annealed, over the epochs of the step size; by default it stays as it is."""
    step_size: float = 0.02
    """Outer step size at the first epoch."""
    step_size_end: float = 0.02
    """Outer step size once annealed."""
    step_size_epochs: int = 1
    """Epochs over which the outer step size, and sigma, are annealed linearly."""
    momentum: float = 0.0
    """beta1 of the outer Adam."""
    second_moment: float = 0.99
    """beta2 of the outer Adam."""
    l2: float = 0.0
    """Weight of the L2 penalty on the loss parameters."""
    objective: Literal["final", "last", "lifetime"] = "final"
    """What evolution maximises: return of the scoring trajectories, of the last updates, of the whole lifetime."""
    objective_updates: int = 16
    """How many updates the objective `last` looks back on."""
    horizon: int | None = None
    """Steps at which episodes are cut while evolving, to save scoring time; by default the family's horizon."""
    shard: int = 32
    """Lifetimes evaluated together: the unit of work. Part of the result's identity, unlike the processes."""

    def __post_init__(self) -> None:
        _require_positive(
            self, "evolution", "epochs", "noise_vectors", "lifetimes", "sigma", "step_size", "step_size_end"
        )
        _require_positive(self, "evolution", "step_size_epochs", "objective_updates", "shard")
        require(self.noise_vectors > 1, "evolution.noise_vectors must be at least 2: ranks need a comparison.")
        require(
            self.noise_vectors % 2 == 0,  # for pairs; evosax asks it of plain noise too
            f"evolution.noise_vectors ({self.noise_vectors}) must be even.",
        )
        require(
            self.lifetimes % self.noise_vectors == 0,
            f"evolution.lifetimes ({self.lifetimes}) must be a multiple of "
            f"evolution.noise_vectors ({self.noise_vectors}).",
        )
        require(
            self.lifetimes % self.shard == 0,
            f"evolution.lifetimes ({self.lifetimes}) must be a multiple of evolution.shard ({self.shard}).",
        )
        require(
            not self.paired_tasks or (self.antithetic and self.common_tasks),
            "evolution.paired_tasks needs evolution.antithetic and evolution.common_tasks.",
        )
        require(
            self.sigma_end is None or 0 < self.sigma_end < math.inf,
            f"evolution.sigma_end must be above zero, not {self.sigma_end}.",
        )
        require(self.horizon is None or self.horizon > 0, f"evolution.horizon must be above zero, not {self.horizon}.")
        require(0 <= self.momentum < 1, f"evolution.momentum must lie in [0, 1), not {self.momentum}.")
        require(0 < self.second_moment < 1, "evolution.second_moment must lie between 0 and 1.")
        require(self.l2 >= 0, f"evolution.l2 must not be negative, not {self.l2}.")

    @property
    def tasks(self) -> int:
        """Tasks that each loss meets in an epoch, W / V."""
        return self.lifetimes // self.noise_vectors

    @property
    def sharing(self) -> Sharing:
        """Which losses of an epoch meet the same tasks and random numbers."""
        if not self.common_tasks:
            return "none"
        return "pair" if self.paired_tasks else "all"


@dataclass(frozen=True)
class Settings:
    """All of an evolution: what `config.json` of a run holds."""

    family: str
    """Name of a registered family, or `module:attribute`."""
    seed: int = 0
    """Seed from which every random number of the run is derived."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    loss: LossSettings = field(default_factory=LossSettings)
    lifetime: LifetimeSettings = field(default_factory=LifetimeSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    ppo: PolicyGradientSettings = field(default_factory=PolicyGradientSettings)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)
    search: SearchSettings = field(default_factory=SearchSettings)

    def __post_init__(self) -> None:
        require(
            self.search.epochs == 0 or self.loss.init == "target-action",
            "search.epochs needs loss.init target-action: that target is what it looks for.",
        )
        require(
            self.search.epochs > 0 or self.loss.init_sides == 1,
            "loss.init_sides needs search.epochs: it says how many targets to search for.",
        )
        require(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")
        require(
            self.loss.window >= self.lifetime.steps_per_update,
            f"loss.window ({self.loss.window}) must be at least "
            f"lifetime.steps_per_update ({self.lifetime.steps_per_update}).",
        )
        require(
            self.evolution.objective != "last" or self.evolution.objective_updates <= self.lifetime.updates,
            "evolution.objective_updates must not exceed lifetime.updates.",
        )

    @property
    def searches(self) -> int:
        """How many targets are searched for, one after the other."""
        return 1 if self.search.turned else self.loss.sides


def to_dict(settings: Any) -> dict[str, Any]:
    """Turn any settings record into plain JSON values."""
    return dataclasses.asdict(settings)


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return every value by its dotted name, as the command line spells it."""
    values: dict[str, Any] = {}
    for name, value in vars(settings).items():
        nested = dataclasses.is_dataclass(value)
        values |= flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return values


def from_dict(kind: type[T], data: Any, where: str = "config") -> T:
    """Rebuild a settings record, refusing unknown names and wrong types by name."""
    require(isinstance(data, dict), f"{where} must be an object, not {type(data).__name__}.")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(data) - set(hints))
    require(not unknown, f"{where} has no setting named {', '.join(map(repr, unknown))}.")
    values = {name: _convert(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInput(f"{where} is incomplete: {error}.") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        require(value in choices, f"{where} must be one of {', '.join(map(str, choices))}, not {value!r}.")
        return value
    if origin is tuple:
        require(isinstance(value, list | tuple), f"{where} must be a list, not {value!r}.")
        return tuple(_convert(typing.get_args(hint)[0], item, where) for item in value)
    if origin is types.UnionType:
        return None if value is None else _convert(typing.get_args(hint)[0], value, where)
    if hint is float and type(value) in (int, float):
        require(abs(value) <= LARGEST, f"{where} is too large for a number.")
        return float(value)
    require(type(value) is hint, f"{where} must be {hint.__name__}, not {value!r}.")
    return value
