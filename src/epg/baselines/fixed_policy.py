"""The best fixed policy of a family (domain randomization): what a user would deploy instead of a learning rule.

A linear policy is found by augmented random search (Mania, Guy and Recht 2018) on training tasks, within a given number
of environment steps, and deployed with no learning. A policy costs one short episode to try where a loss costs a
lifetime, and its weights are few.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.baselines import training
from epg.baselines.training import Arrays, Training, TrainingStep
from epg.core.errors import require
from epg.core.rng import Split, Stream, run_key
from epg.core.runtime import jit
from epg.evolution.fitness import centred_ranks
from epg.evolution.loop import stats_of
from epg.evolution.observation_stats import measure_observations
from epg.evolution.task_sampling import task_sampler
from epg.evolution.worker import evolution_family
from epg.executors import make_executor
from epg.executors.base import Executor
from epg.families.base import HostFamily
from epg.learners.reinforce import Reinforce
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.scan_driver import score_policy
from epg.lifetime.update import InnerConfig
from epg.policies.linear import LinearPolicy
from epg.settings import Settings, from_dict
from epg.settings.checks import require_positive
from epg.storage.run import Run

BUILD = "epg.baselines.fixed_policy:build"
AVERAGED = 0.75  # from this share of the budget on, weights are averaged


@dataclass(frozen=True)
class SearchSettings:
    """Augmented random search over linear policies."""

    env_steps: int
    """Budget: environment steps, measuring the observations included."""
    population: int = 64
    """Perturbed policies per step, in pairs of opposite sign; each pair has a task of its own."""
    sigma: float = 0.05
    """Standard deviation of the noise on the weights."""
    step_size: float = 0.03
    """Step size, in units of the standard deviation of the ranks."""
    products: bool = False
    """Whether policies also see the products of two observations."""

    def __post_init__(self) -> None:
        require(self.population > 0 and self.population % 2 == 0, f"population ({self.population}) must be even.")
        require_positive(self, "fixed", "population", "sigma", "step_size")


@dataclass(frozen=True)
class SearchStep(TrainingStep):
    """What is recorded of one step; its fitness is that of the perturbed policies."""

    fitness_best: float
    """Return of the best one."""


@dataclass(frozen=True)
class FixedPolicy:
    """What the search found."""

    policy: LinearPolicy
    """Its architecture."""
    weights: np.ndarray
    """[A, F + 1]."""
    obs_stats: FixedStats
    """Observation statistics."""
    env_steps: int
    """Environment steps spent."""


class Search(Training):
    """A search in progress."""

    kind, noun, checkpoint_every = "fixed", "a search for a fixed policy", 25
    method = "augmented random search over linear policies on training tasks"

    def __init__(
        self, settings: Settings, search: SearchSettings, executor: str = "inline", processes: int | None = None
    ) -> None:
        super().__init__(settings, search)
        spaces = self.family.spaces
        require(not spaces.discrete, f"a fixed linear policy needs continuous actions, not {settings.family}'s.")
        self.search, self._executor = search, (executor, processes)
        self._workers: Executor | None = None
        self.linear = LinearPolicy(spaces, settings.policy.log_std, search.products)
        self.weights = np.zeros((spaces.action, self.linear.features + 1), np.float32)
        self.late_sum, self.late_count = np.zeros_like(self.weights), 0
        self.obs_stats: FixedStats | None = None

    def begin(self) -> None:
        """Measure the observations of the family."""
        self.obs_stats, self.env_steps = measure_observations(self.settings)

    @contextlib.contextmanager
    def session(self, run: Run) -> Iterator[None]:
        """Keep the worker processes."""
        assert self.obs_stats is not None
        stats = [np.asarray(it, float).tolist() for it in (self.obs_stats.mean, self.obs_stats.std)]
        executor, processes = self._executor
        with make_executor(executor, BUILD, {**run.config, "obs_stats": stats}, processes, run.logs) as workers:
            self._workers = workers
            yield

    def work(self) -> tuple[np.ndarray, list[Arrays]]:
        """Return the noise of the next step, and what its policies came to."""
        assert self._workers is not None
        noise, requests = self.ask()
        return noise, self._workers.map(requests)

    def close(self, result: tuple[np.ndarray, list[Arrays]]) -> SearchStep:
        """Move the weights."""
        return self.tell(*result)

    def ask(self) -> tuple[np.ndarray, list[Arrays]]:
        """Return the noise of the next step [P, A, F + 1] and the requests: one episode for each perturbed policy."""
        pairs = self.search.population // 2
        key = run_key(self.settings.seed, Stream.FIXED_POLICY, self.step)
        noise = np.asarray(jax.random.normal(key, (pairs, *self.weights.shape)))
        weights = self.weights + self.search.sigma * np.concatenate([noise, -noise])
        shard = min(self.settings.evolution.shard, len(weights))
        index = np.arange(-(-len(weights) // shard) * shard) % len(weights)  # the last shard is filled up
        task, epoch = (index % pairs).astype(np.int32), np.array(self.step, np.int32)
        rows = [slice(start, start + shard) for start in range(0, len(index), shard)]
        return noise, [{"weights": weights[index[it]], "task": task[it], "epoch": epoch} for it in rows]

    def tell(self, noise: np.ndarray, results: list[Arrays]) -> SearchStep:
        """Close a step: move the weights."""
        names = "fitness", "diverged", "env_steps"
        fitness, diverged, steps = (np.concatenate([it[name] for it in results])[: 2 * len(noise)] for name in names)
        self.weights = self.weights + ascent(noise, fitness, self.search.step_size)
        self.env_steps += int(steps.sum())
        if self.env_steps >= AVERAGED * self.search.env_steps:
            self.late_sum, self.late_count = self.late_sum + self.weights, self.late_count + 1
        self.step += 1
        mean, best = (float(f(fitness)) if np.isfinite(fitness).any() else math.nan for f in (np.nanmean, np.nanmax))
        return SearchStep(self.step - 1, mean, int(diverged.sum()), int(steps.sum()), best)

    def result(self) -> FixedPolicy:
        """Return the mean of the weights that the search ended with."""
        assert self.obs_stats is not None
        weights = self.late_sum / np.float32(max(1, self.late_count)) if self.late_count else self.weights
        return FixedPolicy(self.linear, weights.astype(np.float32), self.obs_stats, self.env_steps)

    def tensors(self) -> Arrays:
        """Return what a checkpoint needs."""
        assert self.obs_stats is not None
        stats = {"obs_mean": self.obs_stats.mean, "obs_std": self.obs_stats.std}
        return {"weights": self.weights, "late_sum": self.late_sum, **stats}

    def info(self) -> dict[str, int]:
        """Return the counts that a checkpoint needs."""
        return {"env_steps": self.env_steps, "late_count": self.late_count}

    def restore(self, tensors: Arrays, info: dict[str, Any], step: int) -> None:
        """Continue from a checkpoint."""
        for name in ("weights", "late_sum"):
            if (tensors[name].shape, tensors[name].dtype) != (self.weights.shape, np.float32):
                raise ValueError(f"{name} has another shape or dtype")
        self.obs_stats = stats_of(tensors, self.family.spaces.observation)
        if self.obs_stats is None:
            raise ValueError("it has no observation statistics")
        self.weights, self.late_sum = tensors["weights"].copy(), tensors["late_sum"].copy()
        self.env_steps, self.late_count, self.step = info["env_steps"], info["late_count"], step

    def trained(self) -> tuple[LinearPolicy, np.ndarray, FixedStats]:
        """Return the policy that was found."""
        found = self.result()
        return found.policy, found.weights, found.obs_stats


def ascent(noise: np.ndarray, fitness: np.ndarray, step_size: float) -> np.ndarray:
    """Return the step of augmented random search from the returns [2 P] of weights moved by +noise, -noise [P, ...].

    Returns are ranked first (non-finite ones last): else the few tasks with high returns decide for all. Only the
    better half of the pairs counts, by the better of the two, and the step is in units of their standard deviation.
    """
    plus, minus = np.split(centred_ranks(fitness), 2)
    kept = np.argsort(-np.maximum(plus, minus), kind="stable")[: max(1, len(noise) // 2)]
    std = np.std(np.concatenate([plus[kept], minus[kept]]))
    if std == 0:
        return np.zeros_like(noise[0])
    slope = np.tensordot((plus - minus)[kept], noise[kept], 1) / len(kept)
    return (step_size / std * slope).astype(np.float32)


def create_run(settings: Settings, search: SearchSettings, path: Path) -> Run:
    """Make the run directory of a search."""
    Search(settings, search)  # refuses what cannot be searched
    return training.create_run(Search.kind, settings, search, path)


def search_run(
    run: Run, executor: str = "local", processes: int | None = None, on_step: Callable[[SearchStep], None] | None = None
) -> FixedPolicy:
    """Search in a run directory until the budget is spent, from its newest checkpoint; save the policy."""
    search = Search(*training.read_run(run, Search, SearchSettings), executor, processes)
    with run.lock():
        training.train(run, search, on_step)
    return search.result()


def score_batch(
    settings: Settings, policy: LinearPolicy, obs_stats: FixedStats, family: Any, split: Split
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Compile `(weights [S, A, F + 1], task [S], epoch) -> mean return, diverged, steps, each [S]`."""
    learner = Reinforce(settings.ppo, policy)
    lifetime = settings.lifetime
    config = InnerConfig(learner, policy, lifetime, family.spaces, lifetime.steps_per_update, obs_stats)
    sampler = task_sampler(family, settings.seed, split)
    if isinstance(family, HostFamily):
        driver, sample = HostDriver(config, family), jit(jax.vmap(sampler, (0, None)))

        def run(weights: Any, task: Any, epoch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            tasks, keys = sample(jnp.asarray(task), jnp.asarray(epoch))
            scores = driver.score_policies(keys, tasks, jnp.asarray(weights))
            return scores.returns.mean(axis=1), scores.diverged, scores.steps

        return run
    steps = lifetime.scoring_episodes * family.horizon

    def one(weights: Any, index: Any, epoch: Any) -> tuple[Any, Any, Any]:
        task, key = sampler(index, epoch)
        returns = score_policy(config, family, task, weights, key)
        return jnp.mean(returns), jnp.int32(0), jnp.int32(steps)

    compiled = jit(jax.vmap(one, (0, 0, None)))
    return lambda *arrays: tuple(np.asarray(it) for it in compiled(*map(jnp.asarray, arrays)))


def build(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Build what a worker process runs: perturbed policies and tasks in, one episode's return out."""
    settings = from_dict(Settings, config["settings"])
    search = from_dict(SearchSettings, config["options"])
    settings = replace(settings, lifetime=replace(settings.lifetime, scoring_episodes=1))
    family = evolution_family(settings)
    policy = LinearPolicy(family.spaces, settings.policy.log_std, search.products)
    stats = FixedStats(*(np.array(it, np.float32) for it in config["obs_stats"]))
    run = score_batch(settings, policy, stats, family, Split.TRAIN)

    def evaluate(request: Arrays) -> Arrays:
        results = run(request["weights"], request["task"], request["epoch"])
        return dict(zip(("fitness", "diverged", "env_steps"), results, strict=True))

    return evaluate
