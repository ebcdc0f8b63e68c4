"""Tasks in batches of one fixed size, so that no result depends on how many tasks were asked for.

Compilers round differently for other batch sizes, and a falling body amplifies the last bit. Here task k is always the
same row of the same batch: alone, among 20 and among 200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.errors import require, require_count, require_seed
from epg.core.rng import Key
from epg.families.base import Task
from epg.lifetime.batch import Sampler

BATCH = 10  # rows; larger ones are hardly faster, and a single task costs a whole batch

MOST = 2**20  # tasks, and lifetimes of each: more would never end

T = TypeVar("T")


def check_held_out(tasks: int, seed: int, lifetimes: int = 1) -> None:
    """Refuse numbers of tasks and lifetimes, and seeds, that cannot be had."""
    for name, number in (("tasks", tasks), ("lifetimes", lifetimes)):
        require_count(name, number)
        require(number <= MOST, f"{name} must be at most {MOST:,}.")
    require_seed(seed)


def batch_with(task: int) -> tuple[Array, int]:
    """Return the indices of the batch that a task is in, and its row there."""
    row = task % BATCH
    return jnp.arange(task - row, task - row + BATCH, dtype=jnp.int32), row


def in_batches(run: Callable[[Array], T], tasks: int) -> T:
    """Run tasks 0 to `tasks`, in whole batches of indices; return NumPy leaves [tasks, ...]."""
    parts = [jax.tree.map(np.asarray, run(batch_with(first)[0])) for first in range(0, tasks, BATCH)]
    joined: T = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:tasks], *parts)
    return joined


def of_lifetime(sample: Sampler) -> Sampler:
    """Return a sampler (index, lifetime) of the tasks of epoch 0, with other random numbers in each lifetime."""

    def again(index: Array, lifetime: Array) -> tuple[Task, Key]:
        return sample(index, jnp.zeros_like(lifetime))[0], sample(index, lifetime)[1]

    return again
