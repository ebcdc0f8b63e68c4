"""What learning on held-out tasks returns: numbers, curves and the policies that were trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.rng import Split
from epg.evaluation.protocol import MethodResult, curves
from epg.evolution.task_sampling import task_sampler
from epg.families.base import Task, unstack
from epg.families.registry import find_family
from epg.policies.trained import TrainedPolicy


@dataclass(frozen=True)
class LearningResult:
    """The result of `epg.learn`, `epg.baseline` and `epg.compare`; also what their run directory holds."""

    run: Path
    """The run directory."""
    family: str
    """Where policies were trained."""
    seed: int
    """Which held-out tasks, initial policies and random numbers."""
    methods: dict[str, MethodResult]
    """Recorded lifetimes by method (epg, ppo, ...), all on the same tasks. The first one is what was asked about."""
    table: dict[str, Any]
    """The content of results.json: intervals over tasks, and paired differences to the first method."""

    @property
    def first(self) -> MethodResult:
        """The method that was asked about: the loss, or the baseline."""
        return next(iter(self.methods.values()))

    @property
    def returns(self) -> np.ndarray:
        """Mean return of the first method's trained policy on each task, [tasks]; NaN if training was not finite."""
        return self.first.final

    @property
    def policies(self) -> tuple[TrainedPolicy, ...]:
        """The policies that the first method trained, one per task. Others: `result.methods["ppo"].policies`."""
        return self.first.policies

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """`METHOD/episode_return` [tasks, steps], `METHOD/kl` [tasks, updates] and `METHOD/final` [tasks].

        Without resets also `METHOD/reached` [tasks, updates]: goals reached.
        """
        return curves(list(self.methods.values()))

    @property
    def tasks(self) -> list[Task]:
        """The held-out tasks as records of NumPy numbers; those of `epg.gym_family` have the factory's `seed`."""
        number, family = len(self.returns), find_family(self.family)
        sample = jax.vmap(task_sampler(family, self.seed, Split.HELD_OUT), (0, None))
        return unstack(sample(jnp.arange(number, dtype=jnp.int32), jnp.int32(0))[0], number)

    def to_dict(self) -> dict[str, Any]:
        """Return the table and the run directory, in JSON values."""
        return {"run": str(self.run), **self.table}
