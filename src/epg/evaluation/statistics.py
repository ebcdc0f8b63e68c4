"""Summaries of final returns over tasks: the interquartile mean and bootstrap intervals.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), the rliable
library: with few tasks, report an interquartile mean and an interval, not a best or a bare mean. NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epg.core.errors import BadInput

Floats = NDArray[np.float64]

# Resampled values held in memory at once: 32 MB with their indices, whatever the number of tasks.
_BLOCK = 2**21


@dataclass(frozen=True)
class Interval:
    """A statistic and the ends of its confidence interval."""

    value: float
    """The statistic of the sample itself."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""

    def to_dict(self) -> dict[str, float]:
        """Turn into plain JSON values."""
        return asdict(self)


def iqm(x: ArrayLike, axis: int = 0) -> Any:
    """Return the mean of what is left after cutting floor(n/4) values from each end along `axis`."""
    values = np.moveaxis(_checked(x), axis, 0)
    count = values.shape[0]
    cut = count // 4
    # A partition is enough: only which values lie inside matters, not their order.
    inside = np.partition(values, (cut, count - cut - 1), axis=0)[cut : count - cut]
    return inside.mean(axis=0)


def bootstrap(
    x: ArrayLike,
    statistic: Callable[..., Any] = iqm,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Return `statistic` of one value per task with its percentile bootstrap interval over tasks.

    `statistic` takes (array, axis=...), as np.mean and np.median do. A single task gives an interval of
    width zero, which says nothing about other tasks.
    """
    values = _checked(x)
    if values.ndim != 1:
        raise BadInput(f"A bootstrap over tasks needs one value per task, not shape {values.shape}.")
    if resamples < 1:
        raise BadInput(f"A bootstrap needs at least one resample, not {resamples}.")
    if not 0 < confidence < 1:
        raise BadInput(f"The confidence of an interval must lie between 0 and 1, not {confidence}.")
    rng = np.random.default_rng(seed)
    count = len(values)
    rows = max(1, _BLOCK // count)
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    draws = [statistic(values[rng.integers(count, size=(size, count))], axis=1) for size in sizes]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(draws), [tail, 1 - tail])
    return Interval(float(statistic(values, axis=0)), float(low), float(high))


def paired_difference(
    a: ArrayLike, b: ArrayLike, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> Interval:
    """Return the mean over tasks of a - b with its bootstrap interval over tasks.

    Tasks are resampled, both methods together, so what makes a task hard for both cancels. The mean and not
    the interquartile mean, because only the mean of the differences is the difference of the means: trimming
    differences would drop exactly the tasks on which the methods disagree most.
    """
    first, second = _checked(a), _checked(b)
    if first.shape != second.shape:
        raise BadInput(f"A paired difference needs the same tasks twice, not {first.shape} and {second.shape}.")
    return bootstrap(first - second, np.mean, resamples, seed, confidence)


def _checked(x: ArrayLike) -> Floats:
    """Return `x` as float64, refusing what no statistic over tasks is defined for."""
    values = np.asarray(x, dtype=np.float64)
    if values.size == 0 or values.ndim == 0:
        raise BadInput("A statistic over tasks needs at least one value.")
    bad = int(np.count_nonzero(~np.isfinite(values)))
    if bad:
        raise BadInput(f"{bad} of {values.size} values are not finite: no statistic over tasks is defined.")
    return values
