"""Fitness shaping: ranks of losses (Eq. 7), and how much signal there is, overall and per block of phi. NumPy only."""

from collections.abc import Mapping

import numpy as np

from epg.settings import TaskSharing


def centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Rank along the first axis into [-1/2, 1/2]; ties share a rank, non-finite values share the worst."""
    worst_first = np.where(np.isfinite(fitness), fitness, -np.inf)
    below = (worst_first[None] < worst_first[:, None]).sum(axis=1)
    equal = (worst_first[None] == worst_first[:, None]).sum(axis=1)
    ranks = below + (equal - 1) / 2.0
    return (ranks / (fitness.shape[0] - 1) - 0.5).astype(np.float32)


def shape_fitness(fitness: np.ndarray, sharing: TaskSharing, rule: str = "adam") -> np.ndarray:
    """Turn fitness [V, tasks] into one number per loss, [V]: with rule ars returns (`better_half`), otherwise ranks.

    all : losses are compared within each task, and the results averaged: a task with high returns weighs no more.
    pair: the two losses of a pair are compared on their own tasks; see `pair_ranks`.
    none: F is the mean over tasks, then ranked (Eq. 7).
    """
    if rule == "ars":
        tasks = np.split(fitness, fitness.shape[1], axis=1) if sharing == "all" else [fitness]
        return np.mean([better_half(it) for it in tasks], axis=0)
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


def better_half(fitness: np.ndarray) -> np.ndarray:
    """Weigh losses [V, tasks] as augmented random search does (Mania et al. 2018, Algorithm 2, b = half of them).

    Only the better half of the antithetic pairs counts, by the better of the two, with the difference of their mean
    returns in units of the standard deviation of all returns that count. A non-finite return is the worst finite one.
    """
    finite = np.isfinite(fitness)
    means = np.where(finite, fitness, fitness[finite].min() if finite.any() else 0.0).mean(axis=1)
    plus, minus = np.split(means, 2)
    kept = np.argsort(-np.maximum(plus, minus), kind="stable")[: max(1, len(plus) // 2)]
    std = np.concatenate([plus[kept], minus[kept]]).std()
    weights = np.zeros(len(plus), np.float32)
    if std > 0:
        weights[kept] = (plus - minus)[kept] / (2.0 * std)
    return np.concatenate([weights, -weights])


def signal_variance(fitness: np.ndarray, sharing: TaskSharing) -> tuple[float, float]:
    """Estimate the variance of fitness between losses, and the residual variance, from [V, tasks].

    Two-way analysis of variance where all losses share tasks (the tasks' own effect is removed), one-way where none
    do, and one-way of half the difference within each pair where pairs do. When the first is near zero, there is
    nothing to climb. Needs two tasks per loss; a loss with a non-finite lifetime is left out. Negative estimates are
    reported as zero.
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


def half_cosines(noise: np.ndarray, shaped: np.ndarray, blocks: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return per block the cosine between the gradients (Eq. 7) of two halves of the population.

    `noise` is [V, D], `shaped` [V]. The two losses of an antithetic pair, v and v + V / 2, are in the same half. Near
    zero, the block's gradient is noise: without any signal the cosine spreads by one over the root of the block's size.
    """
    number = np.arange(len(shaped)) % max(1, len(shaped) // 2)
    halves = [shaped[rows] @ noise[rows] for rows in (number % 2 == 0, number % 2 == 1)]

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / size if size > 0 else float("nan")

    return {name: cosine(halves[0][index], halves[1][index]) for name, index in blocks.items()}
