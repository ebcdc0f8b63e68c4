"""The one place where random keys are made: from (seed, split, epoch, task, stream), never from a clock.

A key has one consumer. Two lifetimes that share (seed, split, epoch, task) share every random number,
whatever loss trains them: that is what makes common random numbers common.
"""

from enum import IntEnum

import jax
from jax import Array

Key = Array


class Split(IntEnum):
    """Which tasks: for evolution and tuning, or held out for tests. RUN is for keys that belong to no task."""

    TRAIN = 0
    HELD_OUT = 1
    RUN = 2


class Stream(IntEnum):
    """What a key is for."""

    TASK = 0
    POLICY = 1
    LEARNER = 2
    RESET = 3
    ACTION = 4
    SHUFFLE = 5
    SCORE = 6
    NOISE = 7
    LOSS = 8
    FIXED_POLICY = 9
    BATCH = 10
    POOL = 11


def lifetime_key(seed: Array | int, split: Array | int, epoch: Array | int, task: Array | int) -> Key:
    """Make the key from which all streams of one lifetime are derived."""
    key = jax.random.key(seed)
    for part in (split, epoch, task):
        key = jax.random.fold_in(key, part)
    return key


def stream_key(key: Key, stream: Stream) -> Key:
    """Derive the key of one stream."""
    return jax.random.fold_in(key, int(stream))


def run_key(seed: int, stream: Stream, epoch: int = 0) -> Key:
    """Make a key that belongs to a run, not to a lifetime: ES noise, initial phi."""
    return stream_key(lifetime_key(seed, Split.RUN, epoch, 0), stream)
