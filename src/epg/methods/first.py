"""What an evolution begins with: the usual observations of a family, and a target that already acts well.

A target-action loss pulls a policy towards target actions, linear in the observation at first. Such a target is a
policy itself. Trying it as it is costs one short episode where a lifetime costs thousands of steps, and its weights
are few: augmented random search (Mania, Guy and Recht 2018) finds a good one in minutes. Evolution then starts from
the loss that pulls towards it. Everything is derived from the seed, whoever does the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.lifetime.learner import Learned, evolved
from epg.methods.shards import batch_of_lifetimes, draw_lifetimes, find_family, make_plan, while_evolving
from epg.parts.executors.base import Executor
from epg.parts.loss import aim, set_switches, target_columns
from epg.parts.normaliser import pool
from epg.parts.strategy import centred_ranks
from epg.words.keys import Split, Stream, run_key
from epg.words.records import Outcome
from epg.words.settings import Settings


@dataclass(frozen=True)
class Tried:
    """What one step of the search tells: a line of search.jsonl."""

    epoch: int
    """Number, from 0."""
    side: int
    """Which target, of one or two."""
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


AVERAGED = 0.75  # from this share of the search on, weights are averaged
SHARPNESS = 4.0  # of learnt switches: how many times as large as what they should say
SHRINKAGE = 1e-3  # of learnt switches, in units of what they look at

OnTried = Callable[[Tried], None]


def measure_usual(settings: Settings) -> tuple[Settings, int]:
    """Let lifetimes of the first loss see the family; return settings that know it, and the steps it took."""
    outcome = _lifetimes(replace(settings, policy=replace(settings.policy, normalise="lifetime")), _first(settings))
    mean, deviation = (tuple(float(np.float32(it)) for it in part) for part in pool(outcome.normaliser.observation))
    policy = replace(settings.policy, usual_mean=mean, usual_deviation=deviation)
    return replace(settings, policy=policy), int(np.asarray(outcome.env_steps).sum())


def search_targets(settings: Settings, workers: Executor, on_tried: OnTried | None = None) -> tuple[np.ndarray, int]:
    """Search for targets that act well; return their weights [sides, A (F + 1)] and the environment steps spent.

    The weights are means over the last quarter of the search, which its steps circle.
    """
    search, sides, spaces = settings.search, settings.loss.sides, find_family(settings.family).spaces
    columns = len(target_columns(settings.loss, spaces))
    weights, spent = np.zeros((sides, spaces.action * (columns + 1)), np.float32), 0
    late: list[list[np.ndarray]] = [[] for _ in range(sides)]
    for epoch in range(sides * search.epochs):
        began, side = time.perf_counter(), epoch // search.epochs
        key = run_key(settings.seed, Stream.TARGET, epoch)
        noise = np.asarray(jax.random.normal(key, (search.noise_vectors // 2, weights.shape[1])))
        targets = weights[side] + search.sigma * np.concatenate([noise, -noise])
        results = workers.map(list(_requests(targets, epoch, side, settings.evolution.shard)))
        fitness, exploded, steps = (
            np.concatenate([result[name] for result in results])[: len(targets)]
            for name in ("fitness", "exploded", "env_steps")
        )
        weights[side] += ascent(noise, fitness, search.step_size)
        if epoch % search.epochs >= int(AVERAGED * search.epochs):
            late[side].append(weights[side].copy())
        spent += int(steps.sum())
        if on_tried:
            mean, best = float(np.nanmean(fitness)), float(np.nanmax(fitness))
            seconds = time.perf_counter() - began
            on_tried(Tried(epoch, side, mean, best, int(exploded.sum()), int(steps.sum()), seconds))
    return np.stack([np.mean(each, axis=0) for each in late]), spent


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


def aimed_phi(settings: Settings, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the first phi with these linear targets, [sides, A (F + 1)] weights, and the steps it took to find it.

    Nothing random is left in the head: it would move the targets away from what was found. What the switches look at
    is learnt; where it was told, a few lifetimes of both losses tell which of two targets belongs to which sign.
    """
    still = replace(settings.loss, init_scale=0.0, init_context_scale=0.0)
    learned = Learned(still, settings.policy, find_family(settings.family).spaces)
    first = learned.unravel(learned.initial_phi(run_key(settings.seed, Stream.LOSS)))

    def aimed(targets: np.ndarray) -> np.ndarray:
        return np.asarray(ravel_pytree(aim(first, jnp.asarray(targets), still, learned.spaces))[0])

    if len(targets) == 1:
        return aimed(targets), 0
    if settings.loss.init_switch is None:
        weights, steps = learn_switches(settings, targets)
        first = set_switches(first, jnp.asarray(weights), still, learned.spaces)
        return aimed(targets), steps
    losses = [aimed(targets), aimed(targets[::-1])]
    outcomes = [_lifetimes(settings, phi) for phi in losses]
    best = int(np.argmax([np.nanmean(it.final_return) for it in outcomes]))
    return losses[best], int(sum(np.asarray(it.env_steps).sum() for it in outcomes))


def learn_switches(settings: Settings, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """Return mixes [switches, O + A] of the reward's correlations that tell a task's side, and the steps it took.

    They are fitted to lifetimes of losses that pull towards one target each, whatever the task: so they know the
    correlations under policies that are fresh, that go the right way, and that go any other.
    """
    alone = replace(settings, loss=replace(settings.loss, init_sides=1))
    seen, said, steps = [], [], 0
    for side, target in enumerate(targets):
        outcome = _lifetimes(alone, aimed_phi(alone, target[None])[0], epoch=side, correlations=True)
        place = _places(settings, epoch=side)
        rows = np.asarray(outcome.correlations)
        seen.append(rows.reshape(-1, rows.shape[-1]))
        said.append(np.repeat(signs_at(place, len(targets)), rows.shape[1], axis=0))
        steps += int(np.asarray(outcome.env_steps).sum())
    return SHARPNESS * regress(np.concatenate(seen), np.concatenate(said)).T, steps


def signs_at(place: np.ndarray, sides: int) -> np.ndarray:
    """Return what switches should say of tasks at these places on the orbit, [T] -> [T, switches].

    Smooth, so that it matters less how they decide between two sides, and plus or minus one where a side is.
    """
    angle = 2 * np.pi * np.asarray(place)
    if sides == 2:
        return np.cos(angle)[:, None]
    return 2**0.5 * np.stack([np.cos(angle + np.pi / 4), np.sin(angle + np.pi / 4)], axis=1)


def regress(seen: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Return the linear map from rows [T, F] to rows [T, G] of the least squared error, slightly shrunk."""
    seen = seen.astype(np.float64)
    size = np.sqrt(np.mean(seen**2, axis=0)) + 1e-8
    scaled = seen / size
    found = np.linalg.solve(scaled.T @ scaled + SHRINKAGE * len(seen) * np.eye(seen.shape[1]), scaled.T @ said)
    return (found / size[:, None]).astype(np.float32)


def _first(settings: Settings) -> Array:
    """Return the random loss that evolution would begin with."""
    learned = Learned(settings.loss, settings.policy, find_family(settings.family).spaces)
    return learned.initial_phi(run_key(settings.seed, Stream.LOSS))


def _lifetimes(settings: Settings, phi: np.ndarray | Array, epoch: int = 0, correlations: bool = False) -> Outcome:
    """Train with a loss on a shard of training tasks, in this process."""
    family, number = while_evolving(settings), settings.evolution.shard
    plan = make_plan(settings, evolved(settings, family.spaces), family, correlations)
    run = batch_of_lifetimes(plan, family, settings.seed, Split.TRAIN)
    index = jnp.arange(number, dtype=jnp.int32)
    return run(jnp.tile(jnp.asarray(phi), (number, 1)), index, jnp.int32(epoch), jnp.float32(0.0))


def _places(settings: Settings, epoch: int) -> np.ndarray:
    """Return where on the orbit the tasks of such lifetimes stand."""
    family = find_family(settings.family)
    assert family.place is not None
    draw = jax.vmap(draw_lifetimes(family, settings.seed, Split.TRAIN), (0, None))
    tasks, _ = draw(jnp.arange(settings.evolution.shard, dtype=jnp.int32), jnp.int32(epoch))
    return np.asarray(jax.vmap(family.place)(tasks))


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
