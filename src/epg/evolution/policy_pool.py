"""The policy pool: lifetimes that begin with policies of earlier epochs' lifetimes, and their statistics (Fig. 12B).

Half of an epoch's lifetimes begin so, the others with a fresh policy: a loss meets policies of every age, from new
ones to those that it has trained for many lifetimes, and is selected for not ruining any of them. Lifetimes that share
a task share their start. The pool is bounded, is part of every checkpoint, and draws by (seed, epoch) alone.
"""

from __future__ import annotations

import jax
import numpy as np

from epg.core.rng import Stream, run_key

POOLED = 0.5  # share of lifetimes that begin with a policy of the pool
RENEWED = 8  # an epoch replaces one in so many
TENSOR = "pool"  # its name in a checkpoint


class PolicyPool:
    """Policies of earlier lifetimes with their statistics, flat, [n, K] with n up to `size`."""

    def __init__(self, size: int, width: int, seed: int) -> None:
        self.size, self._seed = size, seed
        self.rows = np.zeros((0, width), np.float32)

    def starts(self, epoch: int, tasks: int) -> np.ndarray:
        """Draw how the lifetimes on each of an epoch's tasks start, [tasks, K + 1]; see lifetime/policy_init.py."""
        starts, draw = np.zeros((tasks, self.rows.shape[1] + 1), np.float32), self._draw(epoch, 0)
        if len(self.rows):
            starts[:, :-1] = self.rows[draw.integers(len(self.rows), size=tasks)]
            starts[:, -1] = draw.random(tasks) < POOLED
        return starts

    def add(self, epoch: int, ends: np.ndarray) -> None:
        """Take in some of an epoch's trained policies [W, K] that are finite; random ones leave if there is no room."""
        draw, ends = self._draw(epoch, 1), ends[np.isfinite(ends).all(axis=1)]
        new = ends[draw.permutation(len(ends))[: -(-self.size // RENEWED)]]
        kept = np.sort(draw.permutation(len(self.rows))[: self.size - len(new)])  # of any age: not the newest alone
        self.rows = np.concatenate([self.rows[kept], new])

    def restore(self, rows: np.ndarray) -> None:
        """Continue with the rows of a checkpoint; ValueError if they are not those of such a pool."""
        fits = rows.ndim == 2 and rows.shape[1] == self.rows.shape[1] and len(rows) <= self.size
        if not fits or rows.dtype != np.float32 or not np.isfinite(rows).all():
            raise ValueError("its policy pool is not that of the settings")
        self.rows = rows

    def _draw(self, epoch: int, purpose: int) -> np.random.Generator:
        key = jax.random.fold_in(run_key(self._seed, Stream.POOL, epoch), purpose)
        return np.random.default_rng(np.asarray(jax.random.key_data(key)))
