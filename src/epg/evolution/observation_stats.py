"""Fixed observation statistics: measured once per evolution, with lifetimes of the initial loss."""

import jax.numpy as jnp
import numpy as np

from epg.core.rng import Split, Stream, run_key
from epg.core.types import MetaParams
from epg.evolution.task_sampling import task_sampler
from epg.evolution.worker import evolution_family
from epg.learners.learned import LearnedLoss
from epg.learners.registry import evolution_learner
from epg.lifetime.batch import batch_of_lifetimes
from epg.lifetime.normalizer import FixedStats, pool
from epg.lifetime.update import InnerConfig
from epg.policies.mlp import MlpPolicy
from epg.settings import Settings


def measure_observations(settings: Settings) -> tuple[FixedStats, int]:
    """Run a shard of training lifetimes with running statistics; return what they saw, and the steps it took."""
    family, number = evolution_family(settings), settings.evolution.shard
    policy = MlpPolicy(settings.policy, family.spaces)
    phi = LearnedLoss(settings.loss, policy, family.spaces).initial_phi(run_key(settings.seed, Stream.LOSS))
    learner = evolution_learner(settings, family.spaces, policy)
    config = InnerConfig(learner, policy, settings.lifetime, family.spaces, settings.loss.window)
    run = batch_of_lifetimes(config, family, task_sampler(family, settings.seed, Split.TRAIN))
    meta = MetaParams(jnp.tile(phi, (number, 1)), jnp.float32(0.0), jnp.zeros((number, 0)))
    result = run(meta, jnp.arange(number, dtype=jnp.int32), jnp.int32(0))
    return pool(result.normalizer.observation), int(np.asarray(result.env_steps).sum())
