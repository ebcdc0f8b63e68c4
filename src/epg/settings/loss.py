"""Settings of the learned loss."""

from dataclasses import dataclass
from typing import Literal, get_args

from epg.core.errors import require
from epg.settings.checks import LARGEST_SIZE, require_positive, require_small

LossInput = Literal["reward", "observation-products", "task-features"]


@dataclass(frozen=True)
class LossSettings:
    """The learned loss: temporal convolutions over the window, memory, dense head (paper, section 4)."""

    window: int = 128
    """N: number of newest transitions that the loss sees."""
    inputs: tuple[LossInput, ...] = ()
    """Inputs beside observation, action, done, policy output and memory; see loss/inputs.py."""
    modulation: Literal["none", "reward", "lasting-reward", "transitions", "task-features"] = "none"
    """Statistics of the window that multiply the head's observations (loss/modulation.py); none: the paper's head."""
    mixes: int = 6
    """Number of mixes of these statistics: random ones, or (lasting-reward) those that best tell lifetimes apart."""
    temporal: Literal["policy", "experience", "none"] = "policy"
    """What the convolutions see: also the policy at every window position (the paper), only what is fixed within an
    update (fast: no policy passes over the window), or no convolutions at all."""
    memory: int = 32
    """Tanh units of the memory, trained with the policy."""
    kernels: tuple[int, ...] = (8, 4)
    """Kernel length of each temporal convolution."""
    strides: tuple[int, ...] = (7, 2)
    """Stride of each temporal convolution."""
    channels: int = 10
    """Output channels of each temporal convolution."""
    context: int = 32
    """Units of the layer that follows the convolutions: the length of the context vector."""
    hidden: int = 16
    """Units of the head's hidden layer."""
    init: Literal["target-action", "random"] = "target-action"
    """Initial head: random weights, or the distance between the policy's mean and a target action near zero."""

    def __post_init__(self) -> None:
        require_positive(self, "loss", "window", "mixes", "channels", "context", "hidden")
        for name in ("memory", "mixes", "channels", "context", "hidden"):
            require_small(f"loss.{name}", getattr(self, name), 2**10)
        require_small("loss.window", self.window, self.channels, 2**4)
        require(len(self.kernels) <= 16, f"loss.kernels has {len(self.kernels)} layers: at most 16 are possible.")
        require(0 <= self.memory <= LARGEST_SIZE, f"loss.memory must lie in [0, {LARGEST_SIZE}], not {self.memory}.")
        unknown = sorted(set(self.inputs) - set(get_args(LossInput)))
        require(not unknown, f"loss.inputs names {', '.join(unknown)}: choose from {', '.join(get_args(LossInput))}.")
        require(len(set(self.inputs)) == len(self.inputs), "loss.inputs must not name an input twice.")
        require(
            self.modulation not in ("reward", "lasting-reward") or "reward" in self.inputs,
            f"loss.modulation {self.modulation} needs reward in loss.inputs.",
        )
        require(
            self.modulation != "task-features" or "task-features" in self.inputs,
            "loss.modulation task-features needs task-features in loss.inputs.",
        )
        require(
            len(self.kernels) == len(self.strides) and min(*self.kernels, *self.strides, 1) > 0,
            "loss.kernels and loss.strides need one positive number per convolution.",
        )
        require(
            self.temporal == "none" or self.frames > 0,
            f"loss.window of {self.window} is too short for its convolutions.",
        )

    @property
    def sees_reward(self) -> bool:
        """Whether the reward is a declared input."""
        return "reward" in self.inputs

    @property
    def mixes_history(self) -> bool:
        """Whether mixes of what the window holds multiply the head's observations."""
        return self.modulation not in ("none", "task-features")

    @property
    def context_size(self) -> int:
        """Length of the context vector that the head sees."""
        return 0 if self.temporal == "none" else self.context

    @property
    def frames(self) -> int:
        """Length in time of the last convolution's output."""
        length = self.window
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            length = (length - kernel) // stride + 1 if length >= kernel else 0
        return length
