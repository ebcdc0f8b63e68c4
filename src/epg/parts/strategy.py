"""The evolution strategy of Algorithm 1: evosax's Open_ES with an optax chain, ranks and their signal.

Fitness is maximised here; evosax minimises, so shaped fitness changes sign on its way in (Eq. 7).
"""

from typing import Any

import jax
import numpy as np
import optax
from evosax.algorithms.distribution_based.open_es import Open_ES
from evosax.core.fitness_shaping import identity_fitness_shaping_fn
from jax import Array

from epg.words.keys import Key
from epg.words.settings import EvolutionSettings, Sharing


def step_size(settings: EvolutionSettings, epoch: int) -> float:
    """Return the outer step size at `epoch`, linear from the first to the last value."""
    share = min(1.0, epoch / settings.step_size_epochs)
    return settings.step_size + share * (settings.step_size_end - settings.step_size)


def noise_scale(settings: EvolutionSettings, epoch: int) -> float:
    """Return sigma at `epoch`, linear from the second on (evosax gives the first two the same)."""
    if settings.sigma_end is None:
        return settings.sigma
    share = min(1.0, max(0, epoch - 1) / settings.step_size_epochs)
    return settings.sigma + share * (settings.sigma_end - settings.sigma)


def optimiser(settings: EvolutionSettings) -> optax.GradientTransformation:
    """Return Adam with L2 regularisation in its gradient (section 4) and a linear step size."""
    schedule = optax.linear_schedule(
        settings.step_size, settings.step_size_end, transition_steps=settings.step_size_epochs
    )
    return optax.chain(
        optax.add_decayed_weights(2.0 * settings.l2),  # the gradient of l2 * |phi|^2
        optax.scale_by_adam(b1=settings.momentum, b2=settings.second_moment),
        optax.scale_by_learning_rate(schedule),
    )


def _sigma_schedule(settings: EvolutionSettings) -> optax.Schedule:
    if settings.sigma_end is None:
        return optax.constant_schedule(settings.sigma)
    return optax.linear_schedule(settings.sigma, settings.sigma_end, transition_steps=settings.step_size_epochs)


class Strategy:
    """Ask for perturbed losses, tell their fitness. State goes in and out as plain arrays."""

    def __init__(self, settings: EvolutionSettings, phi: Array) -> None:
        self._es = Open_ES(
            population_size=settings.noise_vectors,
            solution=phi,
            use_antithetic_sampling=settings.antithetic,
            optimizer=optimiser(settings),
            std_schedule=_sigma_schedule(settings),
            fitness_shaping_fn=identity_fitness_shaping_fn,
        )
        self._params = self._es.default_params
        self._state = _typed(self._es.init(jax.random.key(0), phi, self._params))

    @property
    def phi(self) -> np.ndarray:
        """Return the current loss parameters, [D]."""
        return np.asarray(self._state.mean)

    def ask(self, key: Key) -> np.ndarray:
        """Return the perturbed losses of an epoch, [V, D]."""
        return np.asarray(self._es.ask(key, self._state, self._params)[0])

    def tell(self, population: np.ndarray, shaped: np.ndarray) -> None:
        """Move phi up the shaped fitness [V] (Eq. 7)."""
        # The key is not used by Open_ES; best_fitness bookkeeping of evosax is not used by us.
        key = jax.random.key(0)
        self._state = _typed(self._es.tell(key, population, -shaped, self._state, self._params)[0])

    def state(self) -> dict[str, np.ndarray]:
        """Return all that a checkpoint needs."""
        leaves = jax.tree.leaves(self._state)
        return {f"strategy/{index:02d}": np.asarray(leaf) for index, leaf in enumerate(leaves)}

    def restore(self, tensors: dict[str, np.ndarray]) -> None:
        """Continue from a checkpoint; ValueError if it is not one of this strategy."""
        leaves, structure = jax.tree.flatten(self._state)
        names = [f"strategy/{index:02d}" for index in range(len(leaves))]
        if set(tensors) != set(names):
            raise ValueError(f"expected {len(names)} tensors of the strategy, found {len(tensors)} others")
        restored = [_like(leaf, tensors[name]) for leaf, name in zip(leaves, names, strict=True)]
        state = jax.tree.unflatten(structure, restored)
        if not np.isfinite(state.mean).all():
            raise ValueError("phi holds a number that is not finite")
        self._state = state


def _typed(state: Any) -> Any:
    """Give evosax's weakly typed numbers their dtype: else the second epoch would compile its programs anew."""
    return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype=leaf.dtype), state)


def _like(leaf: Any, value: np.ndarray) -> Array:
    if value.shape != np.shape(leaf) or value.dtype != leaf.dtype:
        raise ValueError(f"expected {leaf.dtype} of shape {np.shape(leaf)}, found {value.dtype} of {value.shape}")
    return jax.numpy.asarray(value)


def centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Rank along the first axis into [-1/2, 1/2]; ties share a rank, non-finite values share the worst."""
    worst_first = np.where(np.isfinite(fitness), fitness, -np.inf)
    below = (worst_first[None] < worst_first[:, None]).sum(axis=1)
    equal = (worst_first[None] == worst_first[:, None]).sum(axis=1)
    ranks = below + (equal - 1) / 2.0
    return (ranks / (fitness.shape[0] - 1) - 0.5).astype(np.float32)


def shape_fitness(fitness: np.ndarray, sharing: Sharing) -> np.ndarray:
    """Turn fitness [V, tasks] into one number per loss, [V].

    all : losses are ranked within each task and the ranks averaged: a task with high returns weighs no more.
    pair: the two losses of a pair are compared on their own tasks; see `pair_ranks`.
    none: F is the mean over tasks, then ranked (Eq. 7).
    """
    if sharing == "all":
        return centred_ranks(fitness).mean(axis=1)
    if sharing == "pair":
        ranks = pair_ranks(*np.split(fitness, 2)).mean(axis=1)
        return np.concatenate([ranks, -ranks])
    return centred_ranks(fitness.mean(axis=1))


def pair_ranks(plus: np.ndarray, minus: np.ndarray) -> np.ndarray:
    """Rank by how much the first of each pair is better, into (-1/2, 1/2): exchanging the two changes the sign.

    The rank is taken among all differences and their opposites. One non-finite fitness makes the other win by
    more than any finite difference; two are a draw.
    """
    finite = np.isfinite(plus), np.isfinite(minus)
    with np.errstate(invalid="ignore"):
        gap = np.where(finite[0] & finite[1], plus - minus, np.where(finite[0] == finite[1], 0.0, np.inf))
    gap = np.where(finite[1] & ~finite[0], -gap, gap)
    both = np.concatenate([gap.ravel(), -gap.ravel()])
    below = (both < gap[..., None]).sum(axis=-1)
    above = (both > gap[..., None]).sum(axis=-1)
    return ((below - above) / (2.0 * both.size)).astype(np.float32)


def signal(fitness: np.ndarray, sharing: Sharing) -> tuple[float, float]:
    """Estimate the variance of fitness between losses, and the residual variance, from [V, tasks].

    Two-way analysis of variance where all losses share tasks (their own effect is removed), one-way where none
    do, and one-way of half the difference within each pair where pairs do. When the first is near zero, evolution
    has nothing to climb. Needs two tasks; lifetimes that were not finite are left out with their loss. Negative
    estimates are reported as zero.
    """
    if sharing == "pair":
        fitness = np.subtract(*np.split(fitness, 2)) / 2.0
    fitness = fitness[np.isfinite(fitness).all(axis=1)].astype(np.float64)
    losses, tasks = fitness.shape
    if tasks < 2 or losses < 2:
        return float("nan"), float("nan")
    residual = fitness - fitness.mean(axis=1, keepdims=True)
    freedom = losses * (tasks - 1)
    if sharing == "all":
        residual = residual - residual.mean(axis=0, keepdims=True)
        freedom = (losses - 1) * (tasks - 1)
    within = float((residual**2).sum() / freedom)
    between = (float(fitness.mean(axis=1).var(ddof=1)) * tasks - within) / tasks
    return max(0.0, between), within
