"""What is measured once per evolution, with lifetimes of an initial loss: observation and window statistics."""

from collections.abc import Iterator
from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Split
from epg.core.runtime import jit
from epg.core.types import LifetimeResult, MetaParams, Window
from epg.evolution.task_sampling import task_sampler
from epg.evolution.vector import EvolvedVector
from epg.evolution.worker import evolution_family
from epg.learners.registry import evolution_learner
from epg.lifetime.batch import batch_of_lifetimes
from epg.lifetime.normalizer import FixedStats, Normalizer, pool
from epg.lifetime.update import InnerConfig
from epg.lifetime.window import normalize_window, normalized_trace
from epg.loss.modulation import (
    StatisticsScale,
    lasting_directions,
    reward_statistics,
    statistics_scale,
    transition_statistics,
)
from epg.settings import Settings

DIRECTIONS_FROM = 256  # lifetimes of which lasting directions are measured; at most four times those of an epoch


def measure_observations(settings: Settings) -> tuple[FixedStats, int]:
    """Measure observations over training tasks, with running statistics; return also the steps it took."""
    result = next(_shards(settings, None, 1))
    return pool(result.normalizer.observation), _steps(result)


def measure_statistics(settings: Settings, obs_stats: FixedStats | None) -> tuple[StatisticsScale, int]:
    """Measure the statistics that a modulated head mixes, at the end of lifetimes; return also the steps it took."""
    if settings.loss.modulation == "lasting-reward":
        return _measure_directions(settings, obs_stats)
    result = next(_shards(settings, obs_stats, 1))
    windows = jax.vmap(normalize_window)(result.window, result.normalizer)
    return statistics_scale(np.asarray(jax.vmap(transition_statistics)(windows))), _steps(result)


def _measure_directions(settings: Settings, obs_stats: FixedStats | None) -> tuple[StatisticsScale, int]:
    """Measure the lasting directions: of both halves of a lifetime, as far as the window reaches back."""
    rows = min(settings.loss.window, settings.lifetime.steps)
    parts = slice(-rows, -(rows // 2)), slice(-(rows // 2), None)

    def halves(window: Window, normalizer: Normalizer) -> tuple[Array, Array]:
        seen, trace = normalize_window(window, normalizer), normalized_trace(window, normalizer)
        first, second = (reward_statistics(jax.tree.map(itemgetter(it), seen), trace[it]) for it in parts)
        return first, second

    compiled = jit(jax.vmap(halves))
    statistics, steps = [], 0
    lifetimes = min(DIRECTIONS_FROM, 4 * settings.evolution.lifetimes)
    for result in _shards(settings, obs_stats, -(-lifetimes // settings.evolution.shard)):
        statistics.append(compiled(result.window, result.normalizer))
        steps += _steps(result)
    first, second = (np.concatenate(it) for it in zip(*statistics, strict=True))
    return lasting_directions(first, second), steps


def _steps(result: LifetimeResult) -> int:
    return int(np.asarray(result.env_steps).sum())


def _shards(settings: Settings, obs_stats: FixedStats | None, shards: int) -> Iterator[LifetimeResult]:
    """Run shards of training lifetimes with an initial loss that is not yet scaled."""
    family, number = evolution_family(settings), settings.evolution.shard
    vector = EvolvedVector(settings, family.spaces)
    policy = vector.policy
    learner = evolution_learner(settings, family.spaces, policy)
    window, constants = settings.loss.window, family.constant_inputs
    config = InnerConfig(learner, policy, settings.lifetime, family.spaces, window, obs_stats, constants)
    run = batch_of_lifetimes(config, family, task_sampler(family, settings.seed, Split.TRAIN))
    phi, policy_init = (jnp.tile(jnp.asarray(it), (number, 1)) for it in vector.split(np.asarray(vector.initial())))
    meta = MetaParams(phi, jnp.float32(0.0), policy_init)
    for shard in range(shards):
        yield run(meta, shard * number + jnp.arange(number, dtype=jnp.int32), jnp.int32(0))
