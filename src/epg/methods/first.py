"""What an evolution begins with: the usual observations of a family, and a loss that pulls towards targets found.

Everything is derived from the seed, whoever does the work and however often it is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.lifetime.learner import Learned, evolved
from epg.methods.search import OnTried, Search
from epg.methods.shards import batch_of_lifetimes, draw_lifetimes, find_family, make_plan, while_evolving
from epg.parts.files import plain, write_atomic
from epg.parts.loss import aim, set_switches
from epg.parts.normaliser import pool
from epg.parts.store import Run
from epg.words.errors import BadInput
from epg.words.keys import Split, Stream, run_key
from epg.words.records import Outcome
from epg.words.settings import PolicySettings, Settings, from_dict, to_dict

SAVED = 25  # steps of a search after which its state is saved
SHARPNESS = 4.0  # of learnt switches: how many times as large as what they should say
SHRINKAGE = 1e-3  # of learnt switches, in units of what they look at


@dataclass(frozen=True)
class Begun:
    """What an evolution starts with."""

    settings: Settings
    """With what was measured."""
    phi: np.ndarray | None
    """The first loss; None: a random one."""
    env_steps: int
    """What it took."""


def begin(run: Run, settings: Settings, make: Callable[..., Any], on_tried: OnTried | None) -> Begun:
    """Measure and search for what the settings ask to begin with; a search that was stopped goes on."""
    settings, spent, search = _resumed(run, settings) or _started(settings)
    if not settings.search.epochs:
        return Begun(settings, None, spent)

    def save() -> None:
        tensors, tried = search.state()
        run.save_search(tensors, {"policy": to_dict(settings.policy), "measuring": spent, "tried": tried})

    try:
        with make("epg.methods.shards:build_trials", to_dict(settings)) as workers:
            while not search.done:
                step = search.step(workers)
                if on_tried:
                    on_tried(step)
                if len(search.tried) % SAVED == 0:
                    save()
    except BadInput:
        raise  # most likely of the disk
    except BaseException:
        save()
        raise
    save()
    phi, aiming = aimed_phi(settings, search.targets)
    lines = "".join(json.dumps(plain(to_dict(step))) + "\n" for step in search.tried)
    write_atomic(run.path / "search.jsonl", lines.encode())
    return Begun(settings, phi, spent + search.env_steps + aiming)


def _started(settings: Settings) -> tuple[Settings, int, Search]:
    measured, spent = measure_usual(settings) if settings.policy.to_be_measured else (settings, 0)
    return measured, spent, Search(measured)


def _resumed(run: Run, settings: Settings) -> tuple[Settings, int, Search] | None:
    """Return the settings as measured, the steps that took, and the search as it was saved, if it was, and whole."""
    saved = run.load_search()
    if saved is None:
        return None
    try:
        policy = from_dict(PolicySettings, saved.info["policy"])
        measured = replace(settings, policy=policy)
        search = Search(measured)
        search.restore(saved.tensors, saved.info["tried"])
        return measured, int(saved.info["measuring"]), search
    except (BadInput, KeyError, ValueError, TypeError):
        return None  # nothing is lost but time


def measure_usual(settings: Settings) -> tuple[Settings, int]:
    """Let lifetimes of the first loss see the family; return settings that know it, and the steps it took."""
    outcome = _lifetimes(replace(settings, policy=replace(settings.policy, normalise="lifetime")), _first(settings))
    mean, deviation = (tuple(float(np.float32(it)) for it in part) for part in pool(outcome.normaliser.observation))
    policy = replace(settings.policy, usual_mean=mean, usual_deviation=deviation)
    return replace(settings, policy=policy), int(np.asarray(outcome.env_steps).sum())


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
    """Return the linear map from rows [T, F] to rows [T, G] of the least squared error, slightly shrunk.

    Rows of lifetimes in which something was not finite do not count.
    """
    sound = np.isfinite(seen).all(axis=1)
    seen, said = seen[sound].astype(np.float64), said[sound]
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
