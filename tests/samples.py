"""Small spaces, settings and records for tests of the numerical parts, and many tasks for those of families."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from epg.core.rng import Stream, run_key
from epg.core.spaces import Spaces
from epg.core.types import Experience, Rollout
from epg.evolution.loop import EpochMetrics, Evolution
from epg.evolution.worker import ShardResult
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.lifetime.normalizer import init_normalizer
from epg.lifetime.window import build_experience, empty_window, push, update_stats
from epg.policies.mlp import MlpPolicy
from epg.settings import (
    EvolutionSettings,
    LifetimeSettings,
    LossInput,
    LossSettings,
    PolicySettings,
    Settings,
    to_dict,
)
from epg.storage.loss_artefact import LossArtefact

CONTINUOUS = Spaces(observation=3, action=2, features=2)
DISCRETE = Spaces(observation=3, action=4, discrete=True, features=2)
jitted_push = jax.jit(push, static_argnums=2)
jitted_update_stats = jax.jit(update_stats, static_argnums=(2, 3, 4))
jitted_build_experience = jax.jit(build_experience)

SPACES = {"gaussian": CONTINUOUS, "categorical": DISCRETE}


TASKS = 2000


def tasks_of(family, number: int = TASKS):
    """Sample tasks with fixed keys."""
    return jax.jit(jax.vmap(family.sample))(jax.random.split(jax.random.key(7), number))


def uniform(low: float, high: float):
    """Return the distribution function of U(low, high)."""
    return scipy.stats.uniform(low, high - low).cdf


def small_loss(*inputs: LossInput, **changes) -> LossSettings:
    """Return a loss that is small but has every part: two convolutions, memory, context, head."""
    sizes = {"window": 24, "memory": 4, "kernels": (5, 3), "strides": (3, 2), "channels": 4, "context": 6, "hidden": 9}
    return LossSettings(**(sizes | {"inputs": inputs} | changes))


def small_settings(family: str, updates: int, evolution: EvolutionSettings, *inputs: LossInput, **loss) -> Settings:
    """Return settings of lifetimes that take seconds, and are long enough for every part of an update to matter.

    The loss sees the reward, beside the `inputs`.
    """
    return Settings(
        family=family,
        policy=PolicySettings(hidden=(8,), log_std=-0.5),
        loss=small_loss("reward", *inputs, **loss),
        lifetime=LifetimeSettings(16, updates=updates, minibatch=8, learning_rate=1e-2, scoring_episodes=2),
        evolution=evolution,
    )


def some_rollout(rng: np.random.Generator, spaces: Spaces, rows: int) -> Rollout:
    """Make up transitions far from standard scale, some of them terminated, some cut by a time limit."""
    if spaces.discrete:
        action = jnp.asarray(rng.integers(spaces.action, size=rows), jnp.int32)
    else:
        action = jnp.asarray(rng.normal(0.5, 2.0, (rows, spaces.action)), jnp.float32)
    ends = rng.integers(4, size=rows)
    return Rollout(
        observation=jnp.asarray(rng.normal(3.0, 2.0, (rows, spaces.observation)), jnp.float32),
        action=action,
        reward=jnp.asarray(rng.normal(-2.0, 3.0, rows), jnp.float32),
        terminated=jnp.asarray(ends == 0),
        truncated=jnp.asarray(ends == 1),
        next_observation=jnp.asarray(rng.normal(3.0, 2.0, (rows, spaces.observation)), jnp.float32),
    )


def some_experience(
    rng: np.random.Generator, spaces: Spaces, window: int, rows: int = 8, pushes: int = 2
) -> Experience:
    """Make what a learner sees after `pushes` rollouts of `rows` transitions; earlier window rows are padding."""
    filled, stats = empty_window(window, spaces), init_normalizer(spaces.observation, spaces.action)
    for _ in range(pushes):
        rollout = some_rollout(rng, spaces, rows)
        filled, stats = jitted_push(filled, rollout, spaces), jitted_update_stats(stats, rollout, spaces)
    features = jnp.asarray(rng.normal(size=spaces.features), jnp.float32)
    return jitted_build_experience(filled, rollout, stats, features)


def run_epoch(evolution: Evolution, evaluate) -> tuple[EpochMetrics, list[ShardResult]]:
    """Run one epoch of an evolution in this process; `evaluate` is what a worker builds."""
    population = evolution.ask()
    requests = evolution.requests(population)
    results = [ShardResult.from_arrays(evaluate(request.to_arrays())) for request in requests]
    return evolution.tell(population, results, 1.0), results


def fresh_loss(settings: Settings) -> LossArtefact:
    """Return the loss with which an evolution of these settings would begin."""
    family = find_family(settings.family)
    learned = LearnedLoss(settings.loss, MlpPolicy(settings.policy, family.spaces), family.spaces)
    phi = np.asarray(learned.initial_phi(run_key(settings.seed, Stream.LOSS)))
    manifest = {"family": settings.family, "family_version": family.version, "spaces": to_dict(family.spaces)}
    return LossArtefact(phi, {"phi": phi}, {**manifest, "settings": to_dict(settings), "sha256": "0" * 64})
