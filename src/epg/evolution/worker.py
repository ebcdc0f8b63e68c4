"""A shard: a fixed number of lifetimes evaluated together. This is the work that executors hand to processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.rng import Split
from epg.core.runtime import jit
from epg.core.types import MetaParams
from epg.evolution.task_sampling import task_sampler
from epg.families.base import Family
from epg.families.registry import find_family
from epg.learners.registry import evolution_learner
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.policy_init import flat_end
from epg.policies.mlp import MlpPolicy
from epg.settings import Settings, from_dict, to_dict

Arrays = dict[str, np.ndarray]

BUILD = "epg.evolution.worker:build"
"""What a worker process imports and calls, see executors/base.py."""


@dataclass(frozen=True)
class _Record:
    """A record of arrays that crosses a process boundary."""

    def to_arrays(self) -> Arrays:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Rebuild the record."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class ShardRequest(_Record):
    """Which lifetimes to run."""

    phi: np.ndarray
    """Loss parameters of each lifetime, [S, D]."""
    policy_init: np.ndarray
    """How each lifetime's policy starts, [S, ...]: see lifetime/policy_init.py."""
    task: np.ndarray
    """Index of its task, int32 [S]."""
    epoch: np.ndarray
    """Epoch, int32."""
    alpha: np.ndarray
    """Guidance, float32."""


@dataclass(frozen=True)
class ShardResult(_Record):
    """What they came to."""

    fitness: np.ndarray
    """Mean return of the final policy's trajectories, NaN where anything was non-finite, [S]."""
    survived: np.ndarray
    """Share of the time limit that these trajectories lasted, [S]."""
    nonfinite: np.ndarray
    """Updates with a non-finite number, [S]."""
    diverged: np.ndarray
    """Episodes that ended because the simulation diverged, [S]."""
    env_steps: np.ndarray
    """Environment steps simulated, [S]."""
    end: np.ndarray
    """Trained policies and their statistics, [S, K]; [S, 0] without a policy pool."""


def work_config(settings: Settings, obs_stats: FixedStats | None) -> dict[str, Any]:
    """Return what `build` takes, as plain JSON values."""
    stats = None if obs_stats is None else [np.asarray(it, float).tolist() for it in (obs_stats.mean, obs_stats.std)]
    return {"settings": to_dict(settings), "obs_stats": stats}


def evolution_family(settings: Settings) -> Family:
    """Return the family of an evolution, with episodes cut at the evolution's horizon."""
    family = find_family(settings.family)
    if settings.evolution.horizon is None:
        return family
    return replace(family, horizon=min(family.horizon, settings.evolution.horizon))


def build(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Build the shard evaluation that a worker process runs."""
    settings, stats = from_dict(Settings, config["settings"]), config["obs_stats"]
    obs_stats = None if stats is None else FixedStats(*(np.array(it, np.float32) for it in stats))
    family = evolution_family(settings)
    policy = MlpPolicy(settings.policy, family.spaces)
    learner = evolution_learner(settings, family.spaces, policy)
    sampler = task_sampler(family, settings.seed, Split.TRAIN, settings.evolution.balanced)
    run = batch_of_lifetimes(inner_config(settings, learner, policy, family, obs_stats), family, sampler)
    ends, keeps = jit(jax.vmap(flat_end)), settings.evolution.pool > 0

    def evaluate(arrays: Arrays) -> Arrays:
        request = ShardRequest.from_arrays(arrays)
        meta = MetaParams(*(jnp.asarray(it) for it in (request.phi, request.alpha, request.policy_init)))
        result = run(meta, jnp.asarray(request.task), jnp.asarray(request.epoch))
        end = ends(result.policy, result.normalizer) if keeps else np.zeros((len(request.task), 0), np.float32)
        counts = result.nonfinite, result.diverged, result.env_steps
        return ShardResult(*(np.asarray(it) for it in (result.final_return, result.survived, *counts, end))).to_arrays()

    return evaluate
