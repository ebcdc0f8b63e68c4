"""Test-time training (Algorithm 2) on held-out tasks: a fixed learner, recorded; and comparisons on the same tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.errors import BadInput, require
from epg.core.rng import Split
from epg.core.spaces import Spaces
from epg.core.types import LifetimeResult, MetaParams
from epg.evaluation.batches import BATCH, in_batches, of_lifetime
from epg.evaluation.statistics import Interval, bootstrap, iqm, paired_difference
from epg.evaluation.updates import OnUpdate, updates_of
from epg.evolution.loop import stats_of
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import find_family, is_registered
from epg.learners.base import Learner
from epg.learners.learned import LearnedLoss
from epg.learners.registry import policy_gradient
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.env_step import actor_of
from epg.lifetime.normalizer import Constants, FixedStats
from epg.lifetime.policy_init import FRESH
from epg.policies.mlp import MlpPolicy
from epg.policies.trained import Architecture, TrainedPolicy, describe
from epg.settings import Settings, flat, from_dict
from epg.storage.loss_artefact import LossArtefact


@dataclass(frozen=True)
class Method:
    """What trains policies, or deploys them: an evolved loss, PPO, REINFORCE, MAML, RL², a fixed policy."""

    name: str
    """Short name: epg, ppo, reinforce."""
    label: str
    """Name in tables, figures and titles."""
    settings: Settings
    """Of its lifetimes and policies."""
    learner: Learner
    """What turns experience into updates."""
    phi: np.ndarray
    """Loss parameters; empty for PPO and REINFORCE."""
    obs_stats: FixedStats | None = None
    """Fixed observation statistics, if any."""
    tuned: bool = True
    """Whether its settings were chosen for this family (always true of a loss)."""
    start: TrainedPolicy | None = None
    """The policy that lifetimes start from (MAML, RL², fixed policies); None: fresh ones."""
    meta_steps: int = 0
    """Environment steps on training tasks that it cost before: evolution, meta-training, search."""


@dataclass(frozen=True)
class MethodResult:
    """Recorded lifetimes of one method, averaged over the lifetimes of each task."""

    method: str
    """Short name: epg, ppo, reinforce."""
    label: str
    """Name in tables and figures."""
    steps_per_update: int
    """M of this method."""
    final: np.ndarray
    """Mean return of the scoring trajectories, [tasks]; NaN where a lifetime was not finite."""
    episode_return: np.ndarray
    """Return of the episode that ended at each step, NaN where none did, [tasks, steps]."""
    kl: np.ndarray
    """KL of each update, [tasks, updates]."""
    tuned: bool = True
    """Whether its settings were chosen for this family (always true of a loss)."""
    meta_steps: int = 0
    """Environment steps on training tasks that it cost before: evolution, meta-training, search."""
    policies: tuple[TrainedPolicy, ...] = ()
    """The trained policies, one per task: of its first lifetime."""
    lifetimes: int = 1
    """Lifetimes per task."""
    spread: float = 0.0
    """Standard deviation over lifetimes of the interquartile mean of one lifetime per task."""

    @property
    def steps(self) -> int:
        """Environment steps of training."""
        return self.episode_return.shape[1]

    @property
    def updates(self) -> int:
        """Updates of training."""
        return self.kl.shape[1]

    @property
    def nonfinite(self) -> int:
        """Tasks in whose lifetimes a non-finite number appeared."""
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


def obs_stats_of(loss: LossArtefact) -> FixedStats | None:
    """Return the fixed observation statistics of a loss, if it has any."""
    try:
        return stats_of(loss.tensors, int(loss.manifest["spaces"]["observation"]))
    except (ValueError, KeyError) as error:
        raise BadInput(f"the loss is damaged: {error}.") from None


def fitting_learner(loss: LossArtefact, family: str) -> tuple[Settings, LearnedLoss]:
    """Return the settings and the learner of a loss, once everything in the artefact agrees with the family."""
    found, made_for = find_family(family), loss.manifest["family"]
    settings, learner = loss_learner(loss, found.spaces, family)
    require(
        made_for != family or loss.manifest["family_version"] == found.version,
        f"the loss was evolved on version {loss.manifest['family_version']} of {family}, this is {found.version}.",
    )
    return replace(settings, family=family), learner


def loss_learner(loss: LossArtefact, spaces: Spaces, where: str) -> tuple[Settings, LearnedLoss]:
    """Return the settings and the learner of a loss, once it fits the spaces of `where`."""
    settings, evolved_for = settings_of(loss), from_dict(Spaces, loss.manifest["spaces"], "the loss's spaces")
    unused = set() if "task-features" in settings.loss.inputs else {"features"}
    differing = [
        f"{name} {value} instead of {flat(spaces)[name]}"
        for name, value in flat(evolved_for).items()
        if value != flat(spaces)[name] and name not in unused
    ]
    made_for = loss.manifest["family"]
    require(not differing, f"the loss does not fit {where}, it was evolved for {made_for}: {', '.join(differing)}.")
    learner = LearnedLoss(settings.loss, MlpPolicy(settings.policy, spaces), spaces, settings.lifetime.replay)
    try:
        dimension = learner.dimension
    except (TypeError, ValueError, OverflowError) as error:  # sizes that no array can have
        raise BadInput(f"the loss's settings describe no network: {error}.") from error
    require(
        dimension == len(loss.phi),
        f"the loss has {len(loss.phi)} parameters where its settings need {dimension}.",
    )
    return settings, learner


def constants_of(family: str) -> Constants:
    """Return the observations that are constant within a lifetime of a family, as far as it is known here."""
    constants: Constants = find_family(family).constant_inputs if is_registered(family) else ()
    return constants


def loss_method(loss: LossArtefact, family: str, updates: int | None = None) -> Method:
    """Return a loss that trains in a family; alpha is 0."""
    settings, learner = fitting_learner(loss, family)
    method = Method("epg", "evolved loss", with_updates(settings, updates), learner, loss.phi, obs_stats_of(loss))
    return replace(method, meta_steps=loss.manifest.get("env_steps", 0))


def policy_gradient_method(
    settings: Settings, name: str, obs_stats: FixedStats | None = None, tuned: bool = False
) -> Method:
    """Return PPO or REINFORCE in the family of the settings."""
    spaces = find_family(settings.family).spaces
    learner = policy_gradient(name, settings, spaces, MlpPolicy(settings.policy, spaces))
    return Method(name, name.upper(), settings, learner, np.zeros(0, np.float32), obs_stats, tuned)


def record(
    method: Method,
    tasks: int,
    seed: int,
    split: Split = Split.HELD_OUT,
    lifetimes: int = 1,
    on_update: OnUpdate | None = None,
) -> MethodResult:
    """Train policies on tasks and keep their curves, averaged over the lifetimes of a task.

    `on_update` is called for every update of a batch of tasks, once the batch has ended.
    """
    require(lifetimes > 0, f"lifetimes must be above zero, not {lifetimes}.")
    require(tasks > 0, f"tasks must be above zero, not {tasks}.")
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), not {seed}.")
    settings, family = method.settings, find_family(method.settings.family)
    first = method.start
    policy = MlpPolicy(settings.policy, family.spaces) if first is None else first.policy
    start = FRESH if first is None else ravel_pytree(first.params)[0]
    config = inner_config(settings, method.learner, policy, family, method.obs_stats)
    run = batch_of_lifetimes(config, family, of_lifetime(task_sampler(family, seed, split)))
    meta = meta_params(method.phi, start)

    def live(index: Array, lifetime: int) -> LifetimeResult:
        result: LifetimeResult = run(meta, index, jnp.int32(lifetime))
        if on_update is not None:
            kept, first = jax.tree.map(lambda leaf: leaf[: tasks - int(index[0])], result), int(index[0])
            for update in updates_of(kept, method.name, lifetime, first):
                on_update(update)
        return result

    results = [in_batches(partial(live, lifetime=it), tasks) for it in range(lifetimes)]
    final = np.stack([it.final_return for it in results])
    return MethodResult(
        method.name,
        method.label,
        settings.lifetime.steps_per_update,
        final.mean(axis=0),
        _mean_of_known(np.stack([it.episode_return for it in results])).reshape(tasks, -1),
        np.mean([it.kl for it in results], axis=0),
        method.tuned,
        method.meta_steps,
        _policies(results[0], policy, {**describe(policy, settings, method.label, family), "seed": seed}),
        lifetimes=lifetimes,
        spread=float(np.std([iqm(ranked_worst(it)) for it in final], ddof=1)) if lifetimes > 1 else 0.0,
    )


def meta_params(phi: np.ndarray, policy_init: Array = FRESH) -> MetaParams:
    """Return what the lifetimes of one batch are given: the same phi and first policy each, no guidance."""
    phis, policies = (jnp.tile(jnp.asarray(it)[None], (BATCH, 1)) for it in (phi, policy_init))
    return MetaParams(phis, jnp.zeros(()), policies)


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """Average over the first axis what is not NaN; NaN where nothing is known."""
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _policies(result: LifetimeResult, policy: Architecture, manifest: dict[str, Any]) -> tuple[TrainedPolicy, ...]:
    """Take a batch of trained policies apart."""
    actors = jax.vmap(actor_of)(result.policy, result.normalizer.observation)
    rows = [jax.tree.map(lambda leaf: leaf[task], actors) for task in range(len(result.final_return))]  # noqa: B023
    return tuple(
        TrainedPolicy(policy, it.params, np.asarray(it.mean), np.asarray(it.std), {**manifest, "task": task})
        for task, it in enumerate(rows)
    )


def with_updates(settings: Settings, updates: int | None) -> Settings:
    """Return settings with another number of updates in a lifetime."""
    if updates is None:
        return settings
    require(updates > 0, f"updates must be above zero, not {updates}.")
    return replace(settings, lifetime=replace(settings.lifetime, updates=updates))


def table(results: list[MethodResult], family: str, seed: int) -> dict[str, Any]:
    """Summarize for tables, scripts and figures; with several methods, paired differences of the first to each."""
    first = results[0]
    summary: dict[str, Any] = {
        "kind": "learn" if len(results) == 1 else "compare",
        "family": family,
        "tasks": len(first.final),
        "lifetimes": first.lifetimes,
        "steps": max(it.steps for it in results),
        "seed": seed,
        "methods": {
            it.method: {
                "label": it.label,
                "steps": it.steps,
                "updates": it.updates,
                "steps_per_update": it.steps_per_update,
                "tuned": it.tuned,
                "meta_steps": it.meta_steps,
                "interval": it.interval.to_dict(),
                "nonfinite": it.nonfinite,
                "spread": it.spread,
            }
            for it in results
        },
    }
    for other in results[1:]:
        difference = paired_difference(ranked_worst(first.final), ranked_worst(other.final))
        summary["methods"][other.method]["difference"] = difference.to_dict()
    return summary


def curves(results: list[MethodResult]) -> dict[str, np.ndarray]:
    """Return what the figures draw, by name."""
    return {
        f"{it.method}/{name}": np.asarray(getattr(it, name), np.float32)
        for it in results
        for name in ("final", "episode_return", "kl")
    }
