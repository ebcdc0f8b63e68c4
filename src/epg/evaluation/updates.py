"""What lifetimes on held-out tasks report while they are recorded: one record per update of a batch of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from epg.core.types import LifetimeResult


@dataclass(frozen=True)
class BatchUpdate:
    """One update of the lifetimes on a batch of tasks, which are trained together; told when the batch has ended."""

    method: str
    """Short name: epg, ppo, reinforce."""
    lifetime: int
    """Which of the lifetimes per task, from 1."""
    tasks: tuple[int, int]
    """The first and the last task of the batch, from 0."""
    update: int
    """Number of the update, from 1."""
    env_steps: int
    """Steps that each of the lifetimes has taken."""
    episode_return: float
    """Mean return of the episodes that ended since the update before; NaN if none did."""
    kl: float
    """Mean KL between the policies before and after the update."""

    @property
    def curve(self) -> str:
        """Name of the learning curve that it is a point of."""
        return f"{self.method}/lifetime-{self.lifetime}/tasks-{self.tasks[0]}-{self.tasks[1]}"

    @property
    def values(self) -> dict[str, float]:
        """What is written about it, by name."""
        return {"episode_return": self.episode_return, "kl": self.kl}


OnUpdate = Callable[[BatchUpdate], None]


def updates_of(result: LifetimeResult, method: str, lifetime: int, first: int) -> Iterator[BatchUpdate]:
    """Yield the updates of a batch of lifetimes, leaves [tasks, ...], of which `first` is the first task."""
    returns, kl = np.asarray(result.episode_return), np.asarray(result.kl)
    known = np.isfinite(returns)
    total, count = np.where(known, returns, 0.0).sum(axis=(0, 2)), known.sum(axis=(0, 2))
    means = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    tasks, steps = (first, first + len(kl) - 1), returns.shape[2]
    for index, (mean, moved) in enumerate(zip(means.tolist(), kl.mean(axis=0).tolist(), strict=True)):
        yield BatchUpdate(method, lifetime + 1, tasks, index + 1, (index + 1) * steps, mean, moved)
