"""What is recorded of one epoch of an evolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from epg.evolution.fitness import signal_variance
from epg.evolution.strategy import step_size
from epg.evolution.worker import ShardResult
from epg.settings import Settings


class Lifetimes(NamedTuple):
    """Results of all lifetimes of an epoch: the population's W and, if it was measured, those of phi itself."""

    fitness: np.ndarray
    survived: np.ndarray
    nonfinite: np.ndarray
    diverged: np.ndarray
    env_steps: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, results: list[ShardResult]) -> Self:
        """Join the results of shards."""
        return cls(*(np.concatenate([getattr(result, name) for result in results]) for name in cls._fields))


@dataclass(frozen=True)
class EpochMetrics:
    """What is recorded of one epoch: a line of metrics.jsonl."""

    epoch: int
    """Number, from 0."""
    fitness_mean: float
    """Mean fitness of all lifetimes (the quantity of Fig. 20)."""
    fitness_std: float
    """Standard deviation of fitness between losses, each averaged over its tasks."""
    fitness_best: float
    """Fitness of the best loss."""
    fitness_worst: float
    """Fitness of the worst loss."""
    survived: float
    """Mean share of the time limit that the scoring episodes of all lifetimes lasted."""
    variance_between: float
    """Variance of fitness between losses: the signal."""
    variance_residual: float
    """Variance of fitness that losses do not explain: noise."""
    signal: float
    """Signal / (signal + noise)."""
    cosine: dict[str, float]
    """Cosine between the gradients of two halves of the population, per block of phi."""
    phi_fitness: float
    """Mean fitness of phi itself, before this epoch's step, without noise and guidance; NaN if not measured."""
    phi_fitness_error: float
    """Its standard error over lifetimes."""
    alpha: float
    """Guidance."""
    step_size: float
    """Outer step size."""
    phi_norm: float
    """L2 norm of phi after the epoch."""
    nonfinite: int
    """Lifetimes in which a non-finite number appeared: ranked worst."""
    diverged: int
    """Episodes that ended because the simulation diverged."""
    env_steps: int
    """Environment steps simulated in this epoch, scoring included."""
    seconds: float
    """Wall-clock time of this epoch."""


def epoch_metrics(
    settings: Settings, epoch: int, lifetimes: Lifetimes, cosine: dict[str, float], phi_norm: float, seconds: float
) -> EpochMetrics:
    """Summarize an epoch."""
    evolution = settings.evolution
    table = lifetimes.fitness[: evolution.lifetimes].reshape(evolution.noise_vectors, evolution.tasks_per_loss)
    between, residual = signal_variance(table, evolution.task_sharing)
    total = between + residual
    means = table.mean(axis=1)[np.isfinite(table).all(axis=1)]
    mean, std, best, worst = (
        (float(f(means)) if means.size else float("nan")) for f in (np.mean, np.std, np.max, np.min)
    )
    own = lifetimes.fitness[evolution.lifetimes :]
    return EpochMetrics(
        epoch=epoch,
        fitness_mean=mean,
        fitness_std=std,
        fitness_best=best,
        fitness_worst=worst,
        survived=float(lifetimes.survived[: evolution.lifetimes].mean()),
        variance_between=between,
        variance_residual=residual,
        signal=between / total if total > 0 else float("nan"),
        cosine=cosine,
        phi_fitness=float(own.mean()) if own.size else float("nan"),
        phi_fitness_error=float(own.std(ddof=1) / own.size**0.5) if own.size > 1 else float("nan"),
        alpha=settings.guidance.alpha(epoch),
        step_size=step_size(evolution, epoch),
        phi_norm=phi_norm,
        nonfinite=int((lifetimes.nonfinite > 0).sum()),
        diverged=int(lifetimes.diverged.sum()),
        env_steps=int(lifetimes.env_steps.sum()),
        seconds=seconds,
    )
