"""Test-time training (Algorithm 2) on held-out tasks: a fixed learner, recorded; and comparisons on the same tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.errors import require
from epg.core.rng import Split
from epg.core.types import LifetimeResult, MetaParams
from epg.evaluation.batches import BATCH, check_held_out, in_batches, of_lifetime
from epg.evaluation.fitting import check_family, obs_stats_of, settings_of
from epg.evaluation.statistics import Interval, bootstrap, iqm, paired_difference
from epg.evaluation.transfer import Transfer, differences
from epg.evaluation.updates import OnUpdate, updates_of
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import find_family
from epg.learners.base import Learner
from epg.learners.registry import evolution_learner, policy_gradient
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.env_step import actor_of
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.policy_init import FRESH
from epg.policies.mlp import MlpPolicy
from epg.policies.trained import Architecture, TrainedPolicy, describe
from epg.settings import GuidanceSettings, Settings
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
    policy: Architecture | None = None
    """The policy that lifetimes train or deploy; None: the MLP of the settings."""
    policy_init: Array | np.ndarray = field(default_factory=lambda: FRESH)
    """Its initial parameters, flat (MAML, RL², fixed policies, evolved ones); [0]: drawn fresh."""
    meta_steps: int = 0
    """Environment steps on training tasks that it cost before: evolution, meta-training, search."""
    transfer: tuple[str, ...] = ()
    """In what its lifetimes differ from those it was evolved for."""


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
    transfer: tuple[str, ...] = ()
    """In what its lifetimes differ from those it was evolved for."""
    policies: tuple[TrainedPolicy, ...] = ()
    """The trained policies, one per task: of its first lifetime."""
    reached: np.ndarray | None = None
    """Goals reached in each update, [tasks, updates]; None in a family with resets."""
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
    def goals(self) -> Interval | None:
        """Goals reached per 1000 steps of training: mean over tasks, with its 95 % interval; None with resets."""
        return None if self.reached is None else bootstrap(1000 * self.reached.sum(axis=1) / self.steps, np.mean)

    @property
    def interval(self) -> Interval:
        """Interquartile mean of the final returns over tasks, with its 95 % bootstrap interval."""
        return bootstrap(ranked_worst(self.final))


def ranked_worst(final: np.ndarray) -> np.ndarray:
    """Give non-finite lifetimes the worst finite return: never dropped, never zero."""
    finite = final[np.isfinite(final)]
    require(finite.size > 0, "every lifetime met a non-finite number: lower lifetime.learning_rate.")
    return np.where(np.isfinite(final), final, finite.min())


def loss_method(loss: LossArtefact, family: str, transfer: Transfer = Transfer()) -> Method:  # noqa: B008 (frozen)
    """Return a loss that trains in a family, from its evolved initial policy if it has one; alpha is 0.

    Of an initial policy that was evolved for PPO, it is PPO from there (PPO+I).
    """
    evolved, spaces = settings_of(loss), find_family(family).spaces
    check_family(loss, family)
    settings = replace(transfer.apply(replace(evolved, family=family)), guidance=GuidanceSettings())
    changes = differences(evolved, settings)
    same = not any(it.startswith("policy.") for it in changes)
    require(same or not evolved.evolves_init, "an evolved initial policy fits no other policy than its own.")
    label = "evolved loss" if loss.manifest.get("epochs", 1) else "loss before evolution"
    name, label = ("epg", label) if evolved.has_loss else ("ppo", "PPO")
    return Method(
        f"{name}-i" if evolved.evolves_init else name,
        label + ("+I" if evolved.evolves_init else "") + (" (transfer)" if changes else ""),
        settings,
        evolution_learner(settings, spaces, MlpPolicy(settings.policy, spaces)),
        loss.phi,
        obs_stats_of(loss),
        policy_init=loss.policy_init,
        meta_steps=loss.manifest.get("env_steps", 0),
        transfer=changes,
    )


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
    check_held_out(tasks, seed, lifetimes)
    settings, family = method.settings, find_family(method.settings.family)
    policy = method.policy or MlpPolicy(settings.policy, family.spaces)
    config = inner_config(settings, method.learner, policy, family, method.obs_stats)
    run = batch_of_lifetimes(config, family, of_lifetime(task_sampler(family, seed, split)))
    meta = meta_params(method.phi, method.policy_init)

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
        method.transfer,
        _policies(results[0], policy, {**describe(policy, settings, method.label, family), "seed": seed}),
        reached=None if family.resets else np.mean([it.reached for it in results], axis=0),
        lifetimes=lifetimes,
        spread=float(np.std([iqm(ranked_worst(it)) for it in final], ddof=1)) if lifetimes > 1 else 0.0,
    )


def meta_params(phi: np.ndarray, policy_init: Array | np.ndarray = FRESH) -> MetaParams:
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
                "transfer": list(it.transfer),
                "interval": it.interval.to_dict(),
                "nonfinite": it.nonfinite,
                "spread": it.spread,
                "goals": None if it.goals is None else it.goals.to_dict(),
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
        for name in ("final", "episode_return", "kl", "reached")
        if getattr(it, name) is not None
    }
