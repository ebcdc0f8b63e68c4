"""Test-time training (Algorithm 2): a fixed learner on held-out tasks, recorded; and comparisons on the same tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from epg.lifetime.learner import Learned, Learner, hand_made
from epg.methods.shards import batch_of_lifetimes, find_family, make_plan
from epg.parts.artefact import LossArtefact
from epg.parts.statistics import Interval, bootstrap, paired_difference
from epg.words.errors import BadInput
from epg.words.keys import Split
from epg.words.settings import Settings, Spaces, flat, from_dict, require


@dataclass(frozen=True)
class Learning:
    """Recorded lifetimes of one method, one per task."""

    method: str
    """Short name: epg, ppo, reinforce."""
    label: str
    """Name for people."""
    steps_per_update: int
    """M of this method."""
    final: np.ndarray
    """Mean return of the scoring trajectories, [tasks]; NaN where a lifetime was not finite."""
    episode_return: np.ndarray
    """Return of the episode that ended at each step, NaN where none did, [tasks, steps]."""
    kl: np.ndarray
    """KL of each update, [tasks, updates]."""

    @property
    def steps(self) -> int:
        """Environment steps of training."""
        return self.episode_return.shape[1]

    @property
    def nonfinite(self) -> int:
        """Lifetimes in which a non-finite number appeared."""
        return int((~np.isfinite(self.final)).sum())

    @property
    def interval(self) -> Interval:
        """Interquartile mean of the final returns over tasks, with its 95 % bootstrap interval."""
        return bootstrap(ranked_worst(self.final))


def ranked_worst(final: np.ndarray) -> np.ndarray:
    """Give non-finite lifetimes the worst finite return: never dropped, never zero."""
    finite = final[np.isfinite(final)]
    require(finite.size > 0, "every lifetime met a non-finite number: lower lifetime.learning_rate.")
    return np.where(np.isfinite(final), final, finite.min())


def settings_of(loss: LossArtefact) -> Settings:
    """Return the settings a loss was evolved with."""
    return from_dict(Settings, loss.manifest["settings"], "the loss's settings")


def fitting(loss: LossArtefact, family: str) -> tuple[Settings, Learned]:
    """Return the settings of a loss and its learner, once everything that the artefact says agrees with the family."""
    settings = settings_of(loss)
    spaces = find_family(family).spaces
    _check_fit(loss, family, spaces)
    learner = Learned(settings.loss, settings.policy, spaces)
    try:
        dimension = learner.dimension
    except (TypeError, ValueError, OverflowError) as error:  # sizes that no array can have
        raise BadInput(f"the loss's settings describe no network: {error}.") from error
    require(
        dimension == len(loss.phi),
        f"the loss has {len(loss.phi)} parameters where its settings need {dimension}.",
    )
    return settings, learner


def learn_with_loss(loss: LossArtefact, family: str, tasks: int, seed: int, updates: int | None) -> Learning:
    """Train fresh policies with an evolved loss on held-out tasks; alpha is 0."""
    settings, learner = fitting(loss, family)
    settings = with_length(settings, updates)
    return record(settings, learner, family, tasks, seed, phi=loss.phi, label=("epg", "evolved loss"))


def learn_by_hand(settings: Settings, name: str, family: str, tasks: int, seed: int) -> Learning:
    """Train fresh policies with a hand-made learner on held-out tasks."""
    learner = hand_made(name, settings, find_family(family).spaces)
    return record(settings, learner, family, tasks, seed, np.zeros(0, np.float32), (name, name.upper()))


def record(
    settings: Settings,
    learner: Learner,
    family: str,
    tasks: int,
    seed: int,
    phi: np.ndarray,
    label: tuple[str, str],
    split: Split = Split.HELD_OUT,
) -> Learning:
    """Run one lifetime per task, all at once, and keep its curves."""
    require(tasks > 0, f"tasks must be above zero, not {tasks}.")
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), not {seed}.")
    described = find_family(family)
    run = batch_of_lifetimes(make_plan(settings, learner, described), described, seed, split)
    many = jnp.tile(jnp.asarray(phi)[None], (tasks, 1))
    outcome = run(many, jnp.arange(tasks, dtype=jnp.int32), jnp.zeros((), jnp.int32), jnp.zeros(()))
    return Learning(
        *label,
        settings.lifetime.steps_per_update,
        np.asarray(outcome.final_return),
        np.asarray(outcome.episode_return).reshape(tasks, -1),
        np.asarray(outcome.kl),
    )


def with_length(settings: Settings, updates: int | None) -> Settings:
    """Return settings with another number of updates; the objective of evolution no longer matters then."""
    if updates is None:
        return settings
    require(updates > 0, f"updates must be above zero, not {updates}.")
    return replace(
        settings,
        lifetime=replace(settings.lifetime, updates=updates),
        evolution=replace(settings.evolution, objective="final"),
    )


def _check_fit(loss: LossArtefact, family: str, spaces: Spaces) -> None:
    made_for = loss.manifest["family"]
    theirs = from_dict(Spaces, loss.manifest["spaces"], "the loss's spaces")
    require(
        made_for == family,
        f"the loss was evolved for {made_for}, not {family}: name the family it was evolved for.",
    )
    differing = [
        f"{name} {value} instead of {flat(spaces)[name]}"
        for name, value in flat(theirs).items()
        if value != flat(spaces)[name]
    ]
    require(not differing, f"the loss does not fit {family}, it was evolved for {', '.join(differing)}.")
    version = find_family(family).version
    require(
        loss.manifest["family_version"] == version,
        f"the loss was evolved on version {loss.manifest['family_version']} of {family}, this is {version}.",
    )


def table(learnings: list[Learning], family: str, seed: int) -> dict[str, Any]:
    """Summarise for people, scripts and figures; with two methods, the paired difference first minus second."""
    first = learnings[0]
    result: dict[str, Any] = {
        "kind": "learn" if len(learnings) == 1 else "compare",
        "family": family,
        "tasks": len(first.final),
        "steps": max(it.steps for it in learnings),
        "seed": seed,
        "methods": {
            it.method: {
                "label": it.label,
                "steps": it.steps,
                "steps_per_update": it.steps_per_update,
                "interval": it.interval.to_dict(),
                "nonfinite": it.nonfinite,
            }
            for it in learnings
        },
    }
    result |= {it.method: it.interval.to_dict() for it in learnings}
    if len(learnings) > 1:
        difference = paired_difference(ranked_worst(first.final), ranked_worst(learnings[1].final))
        result["difference"] = difference.to_dict()
    return result


def curves(learnings: list[Learning]) -> dict[str, np.ndarray]:
    """Return what the figures draw, by name."""
    return {
        f"{it.method}/{name}": np.asarray(getattr(it, name), np.float32)
        for it in learnings
        for name in ("final", "episode_return", "kl")
    }
