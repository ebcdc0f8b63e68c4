"""Which tasks the lifetimes of an epoch get, and their random keys."""

import numpy as np
from jax import Array

from epg.core.rng import Key, Split, Stream, lifetime_key, stream_key
from epg.families.base import Family, Task
from epg.families.symmetry import balanced
from epg.lifetime.batch import Sampler
from epg.settings import EvolutionSettings

PAIR = 2  # consecutive held-out tasks that are one task moved over the family's orbit: as many forwards as backwards


def task_sampler(family: Family, seed: int, split: Split, balance: int | None = None) -> Sampler:
    """Return `(index, epoch) -> task, key` of one lifetime.

    With `balance` above zero, each `balance` consecutive tasks of an epoch are one task moved evenly over the family's
    orbit; each is still distributed as any other task. By default held-out tasks come in such pairs, so that a table
    does not hang on how many of its tasks run forwards, and training tasks are independent.
    """
    if balance is None:
        balance = PAIR if split is Split.HELD_OUT else 0

    def sample(index: Array, epoch: Array) -> tuple[Task, Key]:
        key = lifetime_key(seed, split, epoch, index)
        if not balance or family.orbit is None:
            return family.sample(stream_key(key, Stream.TASK)), key
        number = index % balance
        first = stream_key(lifetime_key(seed, split, epoch, index - number), Stream.TASK)
        return balanced(lambda: family.sample(first), family.orbit, number, balance), key

    return sample


def assign_tasks(evolution: EvolutionSettings) -> tuple[np.ndarray, np.ndarray]:
    """Return for each of an epoch's W lifetimes the index of its loss and of its task, [W] and [W]."""
    index = np.arange(evolution.lifetimes)
    loss, task = index // evolution.tasks_per_loss, index % evolution.tasks_per_loss
    if evolution.task_sharing == "none":
        task = index
    elif evolution.task_sharing == "pair":  # losses v and v + V / 2
        task = index % (evolution.lifetimes // 2)
    return loss, task.astype(np.int32)
