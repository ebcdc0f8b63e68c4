"""The search for target actions that act well, before evolution: augmented random search, a step at a time.

A target-action loss pulls a policy towards target actions, linear in the observation at first. Such a target is a
policy itself. Trying it as it is costs one short episode where a lifetime costs thousands of steps, and its weights
are few: augmented random search (Mania, Guy and Recht 2018) finds a good one in minutes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from epg.methods.shards import find_family
from epg.parts.executors.base import Executor
from epg.parts.files import Tensors
from epg.parts.interrupts import uninterrupted
from epg.parts.loss import target_columns
from epg.parts.strategy import centred_ranks
from epg.words.keys import Stream, run_key
from epg.words.settings import Settings, from_dict, to_dict

AVERAGED = 0.75  # from this share of the search on, weights are averaged


@dataclass(frozen=True)
class Tried:
    """What one step of the search tells: a line of search.jsonl."""

    epoch: int
    """Number, from 0."""
    side: int
    """Which target, of one or more; one that is turned to all sides is the first."""
    fitness_mean: float
    """Mean return of all perturbed targets."""
    fitness_best: float
    """Return of the best one."""
    exploded: int
    """Episodes that ended because the physics failed."""
    env_steps: int
    """Environment steps simulated in this step."""
    seconds: float
    """Wall-clock time of this step."""
    start: int = 0
    """Which start of the side's search."""


OnTried = Callable[[Tried], None]


class Due(NamedTuple):
    """Whose step is the next."""

    side: int
    start: int
    age: int  # steps that this start has had


class Search:
    """A search under way: the weights of each side's target, one side after the other, and what every step told."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        spaces, loss = find_family(settings.family).spaces, settings.loss
        dimension = spaces.action * (len(target_columns(loss, spaces)) + 1)
        self.weights = np.zeros((settings.searches, settings.search.starts, dimension), np.float32)
        self.late = np.zeros((settings.searches, dimension), np.float32)  # sums of the weights that are averaged
        self.tried: list[Tried] = []

    @property
    def done(self) -> bool:
        """Whether every side has had its steps."""
        return len(self.tried) == self.settings.search.steps * self.settings.searches

    @property
    def due(self) -> Due:
        """Whose step is the next: every start's of a side, then the best one's."""
        search = self.settings.search
        side, number = divmod(len(self.tried), search.steps)
        if number < search.starts * search.trial:
            return Due(side, *divmod(number, search.trial))
        return Due(side, self._best(side), number - (search.starts - 1) * search.trial)

    def _best(self, side: int) -> int:
        """Return the start of a side that did best in the second half of its trial."""
        search = self.settings.search
        begun = self.tried[side * search.steps :][: search.starts * search.trial]
        means = np.array([step.fitness_mean for step in begun]).reshape(search.starts, -1)[:, search.trial // 2 :]
        return int(np.argmax(np.where(np.isfinite(means), means, -np.inf).mean(axis=1))) if search.starts > 1 else 0

    @property
    def env_steps(self) -> int:
        """Return the environment steps spent so far."""
        return sum(step.env_steps for step in self.tried)

    @property
    def targets(self) -> np.ndarray:
        """Return the weights that were found, [sides, A (F + 1)]: the means of those that the search ends with."""
        assert self.done
        search, sides = self.settings.search, self.settings.loss.sides
        found = self.late / np.float32(search.epochs - int(AVERAGED * search.epochs))
        return np.stack([turned(found[0], side, self.settings) for side in range(sides)]) if search.turned else found

    def try_out(self, workers: Executor) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
        """Try the perturbed targets of the next step; return their noise [P, D] and the results of all shards."""
        search, epoch, due = self.settings.search, len(self.tried), self.due
        key = run_key(self.settings.seed, Stream.TARGET, epoch)
        noise = np.asarray(jax.random.normal(key, (search.noise_vectors // 2, self.weights.shape[-1])))
        targets = self.weights[due.side, due.start] + search.sigma * np.concatenate([noise, -noise])
        side = due.side
        if search.turned:
            side = due.age % self.settings.loss.sides
            targets = turned(targets, side, self.settings)
        return noise, workers.map(list(_requests(targets, epoch, side, self.settings.evolution.shard)))

    def tell(self, noise: np.ndarray, results: list[dict[str, np.ndarray]], seconds: float) -> Tried:
        """Close a step: move the weights, and say what happened."""
        search, epoch, (side, start, age) = self.settings.search, len(self.tried), self.due
        fitness, exploded, steps = (
            np.concatenate([result[name] for result in results])[: 2 * len(noise)]
            for name in ("fitness", "exploded", "env_steps")
        )
        self.weights[side, start] += ascent(noise, fitness, search.step_size)
        if age >= int(AVERAGED * search.epochs):
            self.late[side] += self.weights[side, start]
        mean, best = float(np.nanmean(fitness)), float(np.nanmax(fitness))
        self.tried.append(Tried(epoch, side, mean, best, int(exploded.sum()), int(steps.sum()), seconds, start))
        return self.tried[-1]

    def step(self, workers: Executor) -> Tried:
        """Do the next step."""
        began = time.perf_counter()
        noise, results = self.try_out(workers)
        with uninterrupted():
            return self.tell(noise, results, time.perf_counter() - began)

    def state(self) -> tuple[Tensors, list[dict[str, Any]]]:
        """Return what is needed to go on: arrays, and the steps told."""
        return {"weights": self.weights, "late": self.late}, [to_dict(step) for step in self.tried]

    def restore(self, tensors: Tensors, tried: list[dict[str, Any]]) -> None:
        """Go on from a state."""
        for name, here in (("weights", self.weights), ("late", self.late)):
            here[:] = tensors[name].reshape(here.shape)  # the first ones had no axis for starts
        self.tried = []
        for line in tried:
            lost: dict[str, Any] = {name: math.nan for name, it in line.items() if it is None}  # were not finite
            step = from_dict(Tried, line | dict.fromkeys(lost, 0.0), "a step of the search")
            self.tried.append(replace(step, **lost))


def turned(targets: np.ndarray, side: int, settings: Settings) -> np.ndarray:
    """Return what linear targets of side 0, [..., A (O + 1)], are for a body turned to another side.

    Where that body sees o, it does what the target would in its place: A^-k target(S^k o) after k turns, with S and A
    the family's maps of observation and action. Targets see normalised observations, the maps are of raw ones.
    """
    family = find_family(settings.family)
    assert family.turns is not None
    times = side * family.turns.number // settings.loss.sides
    times -= family.turns.number * (
        2 * times > family.turns.number
    )  # the short way round, where less of a quaternion's sign changes
    see, act = (
        np.linalg.matrix_power(np.asarray(jax.vmap(turn)(jnp.eye(size))).T.astype(np.float64), power)
        for turn, size, power in (
            (family.turns.observation, family.spaces.observation, times),
            (family.turns.action, family.spaces.action, -times),
        )
    )
    mean, deviation = np.array(settings.policy.usual_mean), np.array(settings.policy.usual_deviation)
    rows = targets.reshape(*targets.shape[:-1], family.spaces.action, family.spaces.observation + 1)
    slopes, shift = rows[..., :-1] / deviation, (see @ mean - mean)[:, None]
    moved = np.concatenate([slopes @ see * deviation, slopes @ shift + rows[..., -1:]], axis=-1)
    return (act @ moved).reshape(targets.shape).astype(np.float32)


def ascent(noise: np.ndarray, fitness: np.ndarray, step_size: float) -> np.ndarray:
    """Return the step of augmented random search from the returns [2 P] of weights moved by +noise, -noise [P, D].

    Returns are ranked first (non-finite ones last): else the few tasks in which a target excels decide for all. Only
    the better half of the pairs counts, by the better of the two, and the step is in units of their deviation.
    """
    pairs = len(noise)
    plus, minus = np.split(centred_ranks(fitness), 2)
    kept = np.argsort(-np.maximum(plus, minus), kind="stable")[: max(1, pairs // 2)]
    deviation = np.std(np.concatenate([plus[kept], minus[kept]]))
    if deviation == 0:
        return np.zeros_like(noise[0])
    slope = ((plus - minus)[kept, None] * noise[kept]).mean(axis=0)
    return (step_size / deviation * slope).astype(np.float32)


def _requests(targets: np.ndarray, epoch: int, side: int, shard: int) -> Iterator[dict[str, np.ndarray]]:
    """Cut a step's targets into shards; the last one is filled up with its first target."""
    number = len(targets)
    padded = -(-number // shard) * shard
    index = np.where(np.arange(padded) < number, np.arange(padded), 0)
    task = (index % (number // 2)).astype(np.int32)
    for start in range(0, padded, shard):
        rows = slice(start, start + shard)
        yield {
            "target": targets[index[rows]],
            "task": task[rows],
            "epoch": np.array(epoch, np.int32),
            "side": np.array(side, np.int32),
        }
