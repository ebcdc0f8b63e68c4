"""What is measured once per evolution, with lifetimes of an initial loss: observation and window statistics."""

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.rng import Split
from epg.core.types import LifetimeResult, MetaParams
from epg.evolution.task_sampling import task_sampler
from epg.evolution.vector import EvolvedVector
from epg.evolution.worker import evolution_family
from epg.learners.registry import evolution_learner
from epg.lifetime.batch import batch_of_lifetimes
from epg.lifetime.normalizer import FixedStats, pool
from epg.lifetime.update import InnerConfig
from epg.lifetime.window import normalize_window
from epg.loss.modulation import StatisticsScale, statistics_scale, transition_statistics
from epg.settings import Settings


def measure_observations(settings: Settings) -> tuple[FixedStats, int]:
    """Measure observations over training tasks, with running statistics; return also the steps it took."""
    result = _run_shard(settings, None)
    return pool(result.normalizer.observation), int(np.asarray(result.env_steps).sum())


def measure_statistics(settings: Settings, obs_stats: FixedStats | None) -> tuple[StatisticsScale, int]:
    """Measure the statistics that a modulated head mixes, at the end of lifetimes; return also the steps it took."""
    result = _run_shard(settings, obs_stats)
    windows = jax.vmap(normalize_window)(result.window, result.normalizer)
    statistics = np.asarray(jax.vmap(transition_statistics)(windows))
    return statistics_scale(statistics), int(np.asarray(result.env_steps).sum())


def _run_shard(settings: Settings, obs_stats: FixedStats | None) -> LifetimeResult:
    """Run a shard of training lifetimes with an initial loss that is not yet scaled."""
    family, number = evolution_family(settings), settings.evolution.shard
    vector = EvolvedVector(settings, family.spaces)
    policy = vector.policy
    learner = evolution_learner(settings, family.spaces, policy)
    window, constants = settings.loss.window, family.constant_inputs
    config = InnerConfig(learner, policy, settings.lifetime, family.spaces, window, obs_stats, constants)
    run = batch_of_lifetimes(config, family, task_sampler(family, settings.seed, Split.TRAIN))
    phi, policy_init = (jnp.tile(jnp.asarray(it), (number, 1)) for it in vector.split(np.asarray(vector.initial())))
    return run(MetaParams(phi, jnp.float32(0.0), policy_init), jnp.arange(number, dtype=jnp.int32), jnp.int32(0))
