"""Evolved Policy Gradients, the outer loop (Algorithm 1): ask -> shards of lifetimes -> fitness -> tell.

Everything random is derived from (seed, epoch, task, stream) and shards have a fixed size, so phi does not
depend on the executor, the number of processes, or on how often a run was killed and resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from epg.lifetime.learner import Learned
from epg.methods.first import begin
from epg.methods.search import OnTried
from epg.methods.shards import find_family
from epg.parts.executors import Cluster, check_executor, make_executor
from epg.parts.files import plain, write_json
from epg.parts.interrupts import uninterrupted
from epg.parts.metrics import MetricsWriter, read_metrics
from epg.parts.store import Run, save_loss
from epg.parts.strategy import Strategy, shape_fitness, signal, step_size
from epg.words.errors import BadInput
from epg.words.keys import Stream, run_key
from epg.words.settings import Settings, require, to_dict


@dataclass(frozen=True)
class Epoch:
    """What one epoch tells: a line of metrics.jsonl."""

    epoch: int
    """Number, from 0."""
    fitness_mean: float
    """Mean fitness of all lifetimes (the quantity of Fig. 20)."""
    fitness_std: float
    """Deviation of fitness between losses, each averaged over its tasks."""
    fitness_best: float
    """Fitness of the best loss."""
    fitness_worst: float
    """Fitness of the worst loss."""
    variance_between: float
    """Variance of fitness that losses explain: what there is to climb."""
    variance_residual: float
    """Variance of fitness that they do not."""
    signal: float
    """Share of the first in both."""
    alpha: float
    """Guidance."""
    step_size: float
    """Outer step size."""
    phi_norm: float
    """Length of phi after the epoch."""
    nonfinite: int
    """Lifetimes in which a non-finite number appeared: ranked worst."""
    exploded: int
    """Episodes that ended because the physics failed."""
    env_steps: int
    """Environment steps simulated in this epoch, scoring included."""
    seconds: float
    """Wall-clock time of this epoch."""


@dataclass(frozen=True)
class Evolved:
    """What an evolution ends with."""

    run: Path
    """The run's directory."""
    epoch: int
    """Epochs done."""
    env_steps: int
    """Environment steps spent in all of them."""
    loss_sha256: str
    """Digest of the loss that was saved."""
    phi: np.ndarray
    """The evolved loss parameters, [D]."""


OnEpoch = Callable[[Epoch], None]


class Evolution:
    """An evolution in progress: phi, the epoch to do next, and what was spent."""

    def __init__(self, settings: Settings, phi: np.ndarray | None = None) -> None:
        family = find_family(settings.family)
        self.settings = settings
        self.family = family
        learned = Learned(settings.loss, settings.policy, family.spaces)
        first = learned.initial_phi(run_key(settings.seed, Stream.LOSS))
        require(phi is None or phi.shape == first.shape, "the loss to start from has another number of parameters.")
        self.strategy = Strategy(settings.evolution, first if phi is None else jnp.asarray(phi))
        self.next_epoch = 0
        self.env_steps = 0

    def restore(self, run: Run) -> None:
        """Continue from the newest whole checkpoint, if there is one."""
        checkpoint = run.load_checkpoint()
        if checkpoint is None:
            require("start" not in run.config, f"{run.path} lost the loss it was to start from: begin a new run.")
            return
        try:
            self.strategy.restore(checkpoint.tensors)
            env_steps = checkpoint.info["env_steps"]
            if type(env_steps) is not int or env_steps < 0:
                raise ValueError("env_steps is not a number of steps")
        except (KeyError, ValueError, TypeError) as error:
            raise BadInput(f"the checkpoint of {run.path} does not fit its config.json: {error}.") from None
        self.next_epoch, self.env_steps = checkpoint.epoch, env_steps

    def requests(self, population: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
        """Cut an epoch's W lifetimes, loss by loss and task by task, into shards."""
        evolution = self.settings.evolution
        index = np.arange(evolution.lifetimes)
        loss, task = index // evolution.tasks, index % evolution.tasks
        if evolution.sharing == "none":
            task = index
        elif evolution.sharing == "pair":  # losses v and v + V / 2
            task = index % (evolution.lifetimes // 2)
        alpha = np.float32(self.settings.guidance.alpha(self.next_epoch))
        for start in range(0, evolution.lifetimes, evolution.shard):
            rows = slice(start, start + evolution.shard)
            yield {
                "phi": population[loss[rows]],
                "task": task[rows].astype(np.int32),
                "epoch": np.array(self.next_epoch, np.int32),
                "alpha": np.array(alpha),
            }

    def ask(self) -> np.ndarray:
        """Return the perturbed losses of the next epoch, [V, D]."""
        return self.strategy.ask(run_key(self.settings.seed, Stream.NOISE, self.next_epoch))

    def tell(self, population: np.ndarray, results: list[dict[str, np.ndarray]], seconds: float) -> Epoch:
        """Close an epoch: rank, move phi, and say what happened."""
        evolution, epoch = self.settings.evolution, self.next_epoch
        fitness, nonfinite, exploded, env_steps = (
            np.concatenate([result[name] for result in results])
            for name in ("fitness", "nonfinite", "exploded", "env_steps")
        )
        table = fitness.reshape(evolution.noise_vectors, evolution.tasks)
        self.strategy.tell(population, shape_fitness(table, evolution.sharing))
        self.next_epoch, self.env_steps = epoch + 1, self.env_steps + int(env_steps.sum())
        between, residual = signal(table, evolution.sharing)
        means = table.mean(axis=1)[np.isfinite(table).all(axis=1)]
        mean, std, best, worst = (
            (float(f(means)) if means.size else float("nan")) for f in (np.mean, np.std, np.max, np.min)
        )
        total = between + residual
        return Epoch(
            epoch=epoch,
            fitness_mean=mean,
            fitness_std=std,
            fitness_best=best,
            fitness_worst=worst,
            variance_between=between,
            variance_residual=residual,
            signal=between / total if total > 0 else float("nan"),
            alpha=self.settings.guidance.alpha(epoch),
            step_size=step_size(evolution, epoch),
            phi_norm=float(np.linalg.norm(self.strategy.phi)),
            nonfinite=int((nonfinite > 0).sum()),
            exploded=int(exploded.sum()),
            env_steps=int(env_steps.sum()),
            seconds=seconds,
        )

    def save(self, run: Run) -> Evolved:
        """Save the loss to use."""
        curve = [record["fitness_mean"] for record in read_metrics(run.metrics)]
        digest = save_loss(run.path, self.strategy.phi, self.manifest(curve))
        return Evolved(run.path, self.next_epoch, self.env_steps, digest, self.strategy.phi)

    def manifest(self, curve: list[float | None]) -> dict[str, Any]:
        """Describe the loss: what it is for and where it came from."""
        return {
            "family": self.settings.family,
            "family_version": self.family.version,
            "spaces": to_dict(self.family.spaces),
            "settings": to_dict(self.settings),
            "seed": self.settings.seed,
            "epochs": self.next_epoch,
            "env_steps": self.env_steps,
            "curve": curve,
        }


def evolve_run(
    run: Run,
    settings: Settings,
    executor: str = "local",
    processes: int | None = None,
    on_epoch: OnEpoch | None = None,
    cluster: Cluster | None = None,
    on_tried: OnTried | None = None,
) -> Evolved:
    """Evolve in a run's directory from wherever it stands to the last epoch, saving after every epoch.

    Ctrl-C waits for an epoch's bookkeeping, saves the loss so far and then goes on as KeyboardInterrupt.
    """
    check_executor(executor, processes)
    with run.lock():
        make = partial(make_executor, executor, processes=processes, log_dir=run.logs, cluster=cluster)
        if run.load_checkpoint() is None or settings.policy.to_be_measured:
            settings = _begin(run, settings, make, on_tried)
        evolution, work = Evolution(settings), to_dict(settings)
        evolution.restore(run)
        if run.config["settings"] != plain(work):  # more epochs than before, or something measured
            write_json(run.path / "config.json", {**run.config, "settings": work})
        run.forget_search()
        with (
            MetricsWriter.resume(run, evolution.next_epoch) as metrics,
            make("epg.methods.shards:build", work) as workers,
            Saver(run) as saver,
        ):
            try:
                while evolution.next_epoch < settings.evolution.epochs:
                    began, population = time.perf_counter(), evolution.ask()
                    results = workers.map(list(evolution.requests(population)))
                    with uninterrupted():
                        epoch = evolution.tell(population, results, time.perf_counter() - began)
                        metrics.write(epoch.epoch, {k: v for k, v in to_dict(epoch).items() if k != "epoch"})
                        saver.save(evolution.next_epoch, evolution.strategy.state(), evolution.env_steps)
                    if on_epoch:
                        on_epoch(epoch)
            except BadInput:
                raise  # most likely of the disk: what is on it stays as it is, and this is what to tell
            except BaseException:
                if evolution.next_epoch:
                    _finish(evolution, run, saver)
                raise
            return _finish(evolution, run, saver)


def _begin(run: Run, settings: Settings, make: Callable[..., Any], on_tried: OnTried | None) -> Settings:
    """Save what the settings ask to begin with as the checkpoint before the first epoch; return them as measured."""
    if not (settings.policy.to_be_measured or settings.search.epochs):
        return settings
    begun = begin(run, settings, make, on_tried)
    run.save_checkpoint(0, Evolution(begun.settings, begun.phi).strategy.state(), {"env_steps": begun.env_steps})
    return begun.settings


def _finish(evolution: Evolution, run: Run, saver: Saver) -> Evolved:
    """Save the loss as it is now, once its checkpoint is on disk."""
    with uninterrupted():
        saver.wait()
        return evolution.save(run)


class Saver:
    """Write checkpoints beside the next epoch: waiting for a disk would cost more than one percent of a short one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Path] | None = None

    def save(self, epoch: int, tensors: dict[str, np.ndarray], env_steps: int) -> None:
        """Begin to write a checkpoint, once the one before it is on disk."""
        self.wait()
        self._last = self._pool.submit(self._run.save_checkpoint, epoch, tensors, {"env_steps": env_steps})

    def wait(self) -> None:
        """Wait for the checkpoint under way, and raise what went wrong with it."""
        if self._last is not None:
            last, self._last = self._last, None
            last.result()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()
