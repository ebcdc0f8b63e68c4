"""What all trained baselines share: a budget of environment steps, a run directory, exact resume, an artefact."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from epg import __version__
from epg.core.errors import BadInput, require
from epg.core.interrupts import uninterrupted
from epg.core.named import named, rebuilt
from epg.families.registry import find_family
from epg.lifetime.normalizer import FixedStats
from epg.policies.base import Params
from epg.policies.trained import Architecture, TrainedPolicy, describe
from epg.settings import Settings, from_dict, to_dict
from epg.storage.metrics import MetricsWriter
from epg.storage.run import RUN_FORMAT, Checkpoint, Run

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class TrainingStep:
    """What is recorded of one outer step: a line of metrics.jsonl."""

    epoch: int
    """Number of the step, from 0."""
    fitness_mean: float
    """Mean return of what the step evaluated: perturbed policies, or policies that have learned their task."""
    diverged: int
    """Episodes that ended because the simulation diverged."""
    env_steps: int
    """Environment steps simulated in this step."""


class Training(ABC):
    """A baseline in training. `work` does the work of a step and changes nothing; `close` takes its result in."""

    kind: ClassVar[str]
    """Name of the baseline on the command line and in config.json."""
    method: ClassVar[str]
    """By what its policy was trained, for the manifest."""
    noun: ClassVar[str]
    """What messages call it."""
    checkpoint_every: ClassVar[int] = 5
    """Steps between checkpoints."""

    def __init__(self, settings: Settings, options: Any) -> None:
        require(options.env_steps > 0, f"env_steps must be above zero, not {options.env_steps}.")
        self.settings, self.options, self.family = settings, options, find_family(settings.family)
        self.step = self.env_steps = 0

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return bool(self.env_steps >= self.options.env_steps)

    @contextlib.contextmanager
    def session(self, run: Run) -> Iterator[None]:
        """Keep open what all steps need."""
        yield

    def begin(self) -> None:  # noqa: B027 (most have nothing to do)
        """Do what comes before the first step of a new run."""

    @abstractmethod
    def work(self) -> Any:
        """Compute the next step; everything random in it follows from seed and step."""

    @abstractmethod
    def close(self, result: Any) -> TrainingStep:
        """Take in what `work` returned."""

    @abstractmethod
    def tensors(self) -> Arrays:
        """Return what a checkpoint needs."""

    def info(self) -> dict[str, int]:
        """Return the counts that a checkpoint needs."""
        return {"env_steps": self.env_steps}

    @abstractmethod
    def restore(self, tensors: Arrays, info: dict[str, Any], step: int) -> None:
        """Continue from a checkpoint; KeyError, ValueError or TypeError if it is of another training."""

    @abstractmethod
    def trained(self) -> tuple[Architecture, Params, FixedStats]:
        """Return the trained policy: architecture, parameters and observation statistics."""


class GradientTraining(Training):
    """A training whose state is a tree of arrays, moved by gradients."""

    state: Any

    def close(self, result: tuple[Any, TrainingStep]) -> TrainingStep:
        """Take over the next state."""
        self.state, step = result
        self.step += 1
        self.env_steps += step.env_steps
        return step

    def tensors(self) -> Arrays:
        """Return the state by name."""
        return {name: np.asarray(leaf) for name, leaf in named(self.state, "state").items()}

    def restore(self, tensors: Arrays, info: dict[str, Any], step: int) -> None:
        """Continue from a checkpoint."""
        self.state = rebuilt(self.state, "state", tensors)
        self.env_steps, self.step = info["env_steps"], step


def mean_return(returns: np.ndarray) -> float:
    """Return the mean return of the episodes that ended, NaN if none did."""
    return float(np.nanmean(returns)) if np.isfinite(returns).any() else math.nan


def create_run(kind: str, settings: Settings, options: Any, path: Path) -> Run:
    """Make the run directory of a training."""
    config = {
        "format": RUN_FORMAT,
        "kind": kind,
        "epg": __version__,
        "family": settings.family,
        "family_version": find_family(settings.family).version,
        "settings": to_dict(settings),
        "options": to_dict(options),
    }
    return Run.create(path, config)


def read_run(run: Run, training: type[Training], options: type) -> tuple[Settings, Any]:
    """Return settings and options of a run, refusing one of another kind."""
    require(run.config.get("kind") == training.kind, f"{run.path} is not {training.noun}.")
    place = run.path / "config.json"
    settings = from_dict(Settings, run.config.get("settings"), f"{place}: settings")
    begun, version = run.config.get("family_version"), find_family(settings.family).version
    require(
        begun == version,
        f"{run.path} was begun with version {begun} of {settings.family}, and this is version {version}: "
        "start a new run.",
    )
    return settings, from_dict(options, run.config.get("options"), f"{place}: options")


def train(run: Run, training: Training, on_step: Callable[[Any], None] | None = None) -> None:
    """Train in a run that is locked until the budget is spent, from its newest checkpoint; save the policy."""
    _resume(run, training)
    with MetricsWriter.resume(run, training.step) as metrics, training.session(run):
        try:
            while not training.done:
                result = training.work()
                with uninterrupted():
                    step = training.close(result)
                    metrics.write(step.epoch, {k: v for k, v in to_dict(step).items() if k != "epoch"})
                    if training.step % training.checkpoint_every == 0:
                        run.save_checkpoint(training.step, training.tensors(), training.info())
                if on_step:
                    on_step(step)
        finally:
            with uninterrupted():
                run.save_checkpoint(training.step, training.tensors(), training.info())
    run.check_place()
    trained_policy(training).save(run.path)


def trained_policy(training: Training) -> TrainedPolicy:
    """Return the policy of a training with its manifest."""
    settings, (policy, params, stats) = training.settings, training.trained()
    about = describe(policy, settings, training.method, training.family)
    spent = {"env_steps": training.env_steps, "seed": settings.seed}
    manifest = {**about, **spent, "baseline": training.kind, "options": to_dict(training.options)}
    return TrainedPolicy(policy, params, np.asarray(stats.mean), np.asarray(stats.std), manifest)


def _resume(run: Run, training: Training) -> None:
    checkpoint = run.load_checkpoint()
    if checkpoint is None:
        training.begin()
        return
    try:
        _check_state(checkpoint, training.info())
        training.restore(checkpoint.tensors, checkpoint.info, checkpoint.epoch)
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"the checkpoint of {run.path} does not fit {training.noun}: {error}.") from None


def _check_state(checkpoint: Checkpoint, counts: Mapping[str, int]) -> None:
    """Raise ValueError for what no training saved: a count that is none, a number that is not finite."""
    for name in counts:
        value = checkpoint.info[name]
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} is no count")
    for name, tensor in checkpoint.tensors.items():
        if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
            raise ValueError(f"{name} holds a number that is not finite")
