"""Shards: a fixed number of lifetimes evaluated together. This is the work that executors hand to processes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.lifetime.host import HostDriver
from epg.lifetime.learner import Control, Learner, evolved
from epg.lifetime.scan import run_lifetime, try_out
from epg.lifetime.update import Plan
from epg.parts.families import load_family
from epg.parts.families.base import Family, HostFamily, JaxFamily, Task
from epg.parts.policy import linear_policy
from epg.words.keys import Key, Split, Stream, lifetime_key, stream_key
from epg.words.records import Outcome
from epg.words.runtime import COMPILER
from epg.words.settings import EvolutionSettings, Settings, from_dict, require

Batch = Callable[[Array, Array, Array, Array], Outcome]
Trials = Callable[[Array, Array, Array, Array], tuple[Any, Any, Any]]


def draw_lifetimes(family: Family, seed: int, split: Split, balanced: int = 0) -> Callable[[Array, Array], tuple]:
    """Return `(index, epoch) -> task, key` of one lifetime.

    With `balanced` above zero, each `balanced` tasks of an epoch are one task, moved evenly over the family's
    orbit; each is still distributed as any other task.
    """

    def draw(index: Array, epoch: Array) -> tuple[Task, Key]:
        key = lifetime_key(seed, split, epoch, index)
        if not balanced or family.orbit is None:
            return family.sample(stream_key(key, Stream.TASK)), key
        place = index % balanced
        first = family.sample(stream_key(lifetime_key(seed, split, epoch, index - place), Stream.TASK))
        return family.orbit(first, place / balanced), key

    return draw


def batch_of_lifetimes(plan: Plan, family: Family, seed: int, split: Split, balanced: int = 0) -> Batch:
    """Compile `(phi [S, D], task [S], epoch, alpha) -> Outcome [S, ...]`, with the driver that the family needs."""
    draw = draw_lifetimes(family, seed, split, balanced)
    if isinstance(family, HostFamily):
        driver = HostDriver(plan, family)
        draw_all = jax.jit(jax.vmap(draw, (0, None)), compiler_options=COMPILER)

        def run(phi: Array, index: Array, epoch: Array, alpha: Array) -> Outcome:
            tasks, keys = draw_all(index, epoch)
            return driver.run(keys, tasks, Control(phi, alpha))

        return run
    assert isinstance(family, JaxFamily)

    def one(phi: Array, index: Array, epoch: Array, alpha: Array) -> Outcome:
        task, key = draw(index, epoch)
        return run_lifetime(plan, family, task, Control(phi, alpha), key)

    return jax.jit(jax.vmap(one, (0, 0, None, None)), compiler_options=COMPILER)


def batch_of_trials(plan: Plan, family: Family, seed: int, sides: int) -> Trials:
    """Compile `(target [S, A (F + 1)], task [S], epoch, side) -> returns, exploded, steps, each [S]`.

    Nothing is trained. With several `sides`, all tasks are moved to the side's place on the family's orbit.
    """

    def draw(index: Array, epoch: Array, side: Array) -> tuple[Task, Key]:
        task, key = draw_lifetimes(family, seed, Split.TRAIN)(index, epoch)
        if sides == 1:
            return task, key
        assert family.orbit is not None
        assert family.place is not None
        return family.orbit(task, jnp.mod(side / sides - family.place(task), 1.0)), key

    policy = partial(linear_policy, settings=plan.policy, spaces=plan.spaces)
    if isinstance(family, HostFamily):
        driver = HostDriver(plan, family)
        draw_all = jax.jit(jax.vmap(draw, (0, None, None)), compiler_options=COMPILER)
        policies = jax.jit(jax.vmap(policy), compiler_options=COMPILER)

        def run(target: Array, index: Array, epoch: Array, side: Array) -> tuple[Any, Any, Any]:
            tasks, keys = draw_all(index, epoch, side)
            score = driver.try_out(keys, tasks, policies(target))
            return score.returns.mean(axis=1), score.exploded, score.steps

        return run
    assert isinstance(family, JaxFamily)
    steps = plan.lifetime.scoring_episodes * family.horizon

    def one(target: Array, index: Array, epoch: Array, side: Array) -> tuple[Array, Array, Array]:
        task, key = draw(index, epoch, side)
        returns = try_out(plan, family, task, policy(target), key)
        return jnp.mean(returns), jnp.int32(0), jnp.int32(steps)

    return jax.jit(jax.vmap(one, (0, 0, None, None)), compiler_options=COMPILER)


def find_family(name: str) -> Family:
    """Load the family of this name, refusing what is no family."""
    family = load_family(name)
    require(
        isinstance(family, JaxFamily | HostFamily),
        f"{name!r} is a {type(family).__name__}, not a family: name the module:attribute of one (epg.JaxFamily, ...).",
    )
    return family


def while_evolving(settings: Settings) -> Family:
    """Return the family of an evolution, with episodes cut where it cuts them."""
    family = find_family(settings.family)
    if settings.evolution.horizon is None:
        return family
    return replace(family, horizon=min(family.horizon, settings.evolution.horizon))


def make_plan(settings: Settings, learner: Learner, family: Family, correlations: bool = False) -> Plan:
    """Gather what a lifetime's program depends on."""
    require(
        not settings.policy.to_be_measured,
        "policy.normalise is family, and what is usual is not known: evolve a loss, which measures it, "
        "or set policy.usual_mean and policy.usual_deviation.",
    )
    return Plan(learner, settings.lifetime, settings.policy, family.spaces, settings.loss.window, correlations)


def fitness_of(outcome: Outcome, evolution: EvolutionSettings) -> Array:
    """Return what evolution maximises, [S]; NaN where anything in the lifetime was not finite."""
    if evolution.objective == "final":
        return outcome.final_return
    returns = outcome.episode_return
    if evolution.objective == "last":
        returns = returns[:, -evolution.objective_updates :]
    mean = jnp.nanmean(returns, axis=(1, 2))
    return jnp.where(outcome.nonfinite == 0, mean, jnp.nan)


def build(config: dict[str, Any]) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Build the shard evaluation that a worker runs: phi, tasks, epoch and alpha in, fitness out."""
    settings = from_dict(Settings, config)
    family = while_evolving(settings)
    plan = make_plan(settings, evolved(settings, family.spaces), family)
    balanced = settings.evolution.common_tasks and settings.evolution.balanced_tasks
    run = batch_of_lifetimes(
        plan, family, settings.seed, Split.TRAIN, balanced=settings.evolution.tasks if balanced else 0
    )

    def evaluate(request: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outcome = run(
            jnp.asarray(request["phi"]),
            jnp.asarray(request["task"]),
            jnp.asarray(request["epoch"]),
            jnp.asarray(request["alpha"]),
        )
        counts = {name: np.asarray(getattr(outcome, name)) for name in ("nonfinite", "exploded", "env_steps")}
        return {"fitness": np.asarray(fitness_of(outcome, settings.evolution)), **counts}

    return evaluate


def build_trials(config: dict[str, Any]) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Build what a worker runs in the search for a first target: targets and tasks in, one episode's return out."""
    settings = from_dict(Settings, config)
    family = while_evolving(settings)
    linear = replace(
        settings,
        policy=replace(settings.policy, hidden=()),
        lifetime=replace(settings.lifetime, scoring_episodes=1),
    )
    plan = make_plan(linear, evolved(linear, family.spaces), family)
    run = batch_of_trials(plan, family, settings.seed, settings.loss.sides)

    def evaluate(request: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = run(*(jnp.asarray(request[name]) for name in ("target", "task", "epoch", "side")))
        return dict(zip(("fitness", "exploded", "env_steps"), map(np.asarray, results), strict=True))

    return evaluate
