"""Recorded lifetimes of several methods on the same held-out tasks, as one panel of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.rng import Split
from epg.evaluation.fitting import obs_stats_of, settings_of
from epg.evaluation.protocol import (
    Method,
    MethodResult,
    curves,
    loss_method,
    policy_gradient_method,
    ranked_worst,
    record,
    table,
)
from epg.evaluation.statistics import Interval, bootstrap, paired_difference
from epg.evaluation.transfer import Transfer
from epg.evaluation.updates import BatchUpdate, OnUpdate
from epg.evolution.task_sampling import task_sampler
from epg.experiments.base import MIN_TASKS, SEED, Data, Scale, Verdict
from epg.experiments.training import Lab
from epg.families.base import Task, unstack
from epg.families.registry import find_family
from epg.recipes import ppo_settings, recipe_of
from epg.storage.loss_artefact import LossArtefact
from epg.viz.run_reader import Lifetimes

ARRAYS = "final", "episode_return", "kl"


@dataclass(frozen=True)
class Panel:
    """What several methods did on the same tasks."""

    title: str
    """Heading of the panel."""
    summary: dict[str, Any]
    """`evaluation.protocol.table` of it: family, tasks, intervals, steps."""
    methods: dict[str, Lifetimes]
    """By short name, in the order of the legend."""

    def final(self, method: str) -> np.ndarray:
        """Return the final return on each task; non-finite ones as the worst."""
        return ranked_worst(self.methods[method].final)

    def interval(self, method: str) -> Interval:
        """Return the interquartile mean over tasks with its interval."""
        return bootstrap(self.final(method))

    def difference(self, first: str, second: str) -> Interval:
        """Return the mean paired difference with its interval."""
        return paired_difference(self.final(first), self.final(second))


def held_out_tasks(family: str, count: int) -> list[Task]:
    """Return the held-out tasks of the figures as NumPy numbers."""
    sample = jax.vmap(task_sampler(find_family(family), SEED, Split.HELD_OUT), (0, None))
    return unstack(sample(jnp.arange(count, dtype=jnp.int32), jnp.int32(0))[0], count)


def record_panel(lab: Lab, key: str, title: str, methods: Sequence[Method]) -> Data:
    """Train with every method on the same held-out tasks: one lifetime per task, as in the paper."""
    results = []

    def tell(update: BatchUpdate) -> None:
        lab.write(f"{key}/{update.curve}", update.env_steps, update.values)

    for method in methods:
        lab.say(f"{title}: {method.label}, {lab.scale.tasks} lifetimes of {method.settings.lifetime.steps:,} steps")
        own = lab.once(_key(method), partial(_record, method, lab.scale.tasks, tell))
        named = replace(own, method=method.name, label=method.label)
        results.append(replace(named, tuned=method.tuned, meta_steps=method.meta_steps))
    family = methods[0].settings.family
    facts = {"panels": {key: {"title": title, "summary": table(results, family, SEED)}}}
    return Data(facts, {f"{key}/{name}": value for name, value in curves(results).items()})


def _record(method: Method, tasks: int, on_update: OnUpdate) -> MethodResult:
    return replace(record(method, tasks, SEED, on_update=on_update), policies=())


def _key(method: Method) -> Any:
    """Return what decides the lifetimes of a method, apart from its name."""
    start = np.asarray(method.policy_init).tobytes()
    stats = [] if method.obs_stats is None else [method.obs_stats.mean.tobytes(), method.obs_stats.std.tobytes()]
    return method.settings, method.learner, method.policy, method.phi.tobytes(), start, *stats


def merged(parts: Sequence[Data]) -> Data:
    """Join panels and other measurements into the data of one figure."""
    facts: dict[str, Any] = {}
    for part in parts:
        panels = {**facts.get("panels", {}), **part.facts.get("panels", {})}
        facts |= part.facts | ({"panels": panels} if panels else {})
    return Data(facts, {name: value for part in parts for name, value in part.arrays.items()})


def panels(data: Data) -> dict[str, Panel]:
    """Return the panels of a figure by key."""
    found = {}
    for key, about in data.facts["panels"].items():
        methods = {}
        for name, it in about["summary"]["methods"].items():
            arrays = [data.arrays[f"{key}/{name}/{what}"] for what in ARRAYS]
            methods[name] = Lifetimes(name, it["label"], it["steps_per_update"], *arrays)
        found[key] = Panel(about["title"], about["summary"], methods)
    return found


def headed(data: Data) -> dict[str, list[Lifetimes]]:
    """Return the methods of each panel under its heading, which names the family: at smoke scale it is another one."""
    return {f"{it.summary['family']}: {it.title}": list(it.methods.values()) for it in panels(data).values()}


def epg(loss: LossArtefact, family: str, steps: int | None = None, **transfer: Any) -> Method:
    """Return a loss as a method, for lifetimes of its own length or of `steps`; the rest is `Transfer`'s."""
    if steps is not None:
        transfer = {
            "stretch": True,
            **transfer,
            "updates": max(1, steps // settings_of(loss).lifetime.steps_per_update),
        }
    return replace(loss_method(loss, family, Transfer(**transfer)), label="EPG")


def ppo(loss: LossArtefact, family: str, steps: int | None = None) -> Method:
    """Return tuned PPO in the place of a loss: the same policies, as many steps or `steps`."""
    own, stats, recipe = replace(settings_of(loss), family=family), obs_stats_of(loss), recipe_of(family)
    tuning = recipe.tuned_ppo(steps or own.lifetime.steps)
    settings = ppo_settings(own, tuning, steps, stats is not None)
    return policy_gradient_method(settings, "ppo", stats, bool(recipe.ppo))


def paper_steps(scale: Scale, family: str) -> int | None:
    """Return the steps of a lifetime in Table 1; None where it is the loss's own length."""
    if scale.name != "laptop":
        return None
    size, updates = recipe_of(family).paper_sizes
    return size * updates


def number(value: float) -> str:
    """Write a return for a sentence."""
    return (f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}").replace("-", "−")


def span(interval: Interval) -> str:
    """Write an interval for a sentence."""
    return f"{number(interval.value)} ({number(interval.low)} to {number(interval.high)})"


def better(panel: Panel, first: str, second: str) -> Verdict:
    """Judge that the first method ends above the second: the interval of the paired difference is above zero."""
    one, other = panel.methods[first], panel.methods[second]
    gap = panel.difference(first, second)
    measured = (
        f"after {one.steps:,} steps {one.label} has {span(panel.interval(first))}, {other.label} after "
        f"{other.steps:,} steps {span(panel.interval(second))}; paired difference {span(gap)}"
    )
    return Verdict(measured, gap.low > 0) if comparable(panel) else Verdict(measured, None, "fewer than ten tasks")


def comparable(panel: Panel) -> bool:
    """Tell whether there are enough tasks to compare anything."""
    return int(panel.summary["tasks"]) >= MIN_TASKS


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Judge that several things hold."""
    known = [it.holds for it in verdicts]
    holds = None if None in known else all(known)
    return Verdict("; ".join(it.measured for it in verdicts), holds, next((it.why for it in verdicts if it.why), ""))


def at_least(panel: Panel, first: str, second: str) -> Verdict:
    """Judge that the first method is not worse: the interval of the paired difference is not below zero."""
    found, gap = better(panel, first, second), panel.difference(first, second)
    return replace(found, holds=None if found.holds is None else gap.high >= 0)
