"""Algorithm 1: evolve the parameters phi of a loss with an evolution strategy.

    for each epoch:
        ask       the ES for V perturbed losses                          strategy.py      lines 2-3
        evaluate  them in W lifetimes, in shards, by an executor         worker.py        lines 4-16
        shape     their fitness into ranks                               fitness.py
        tell      the ES: one Adam step on phi (Eq. 7)                   strategy.py      line 17
        log and save a checkpoint

Everything random is derived from (seed, epoch, task, stream) and shards have a fixed size, so phi does not depend on
the executor, the number of processes, or how often a run was killed and resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

from epg.core.errors import BadInput, require
from epg.core.interrupts import uninterrupted
from epg.core.rng import Stream, run_key
from epg.evolution.epoch_metrics import EpochMetrics, Lifetimes, epoch_metrics
from epg.evolution.fitness import half_cosines, shape_fitness
from epg.evolution.observation_stats import measure_observations, measure_statistics
from epg.evolution.policy_pool import TENSOR, PolicyPool
from epg.evolution.strategy import Strategy
from epg.evolution.task_sampling import assign_tasks
from epg.evolution.vector import EvolvedVector
from epg.evolution.worker import BUILD, ShardRequest, ShardResult, work_config
from epg.executors import Cluster, check_executor, make_executor
from epg.families.registry import find_family
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.policy_init import end_size
from epg.settings import Settings, to_dict
from epg.storage.checkpoint_writer import CheckpointWriter
from epg.storage.files import write_json
from epg.storage.loss_artefact import save_loss
from epg.storage.metrics import MetricsWriter, read_metrics
from epg.storage.run import Checkpoint, Run

PHI_EVERY = 10  # epochs between measurements of phi itself, without noise, in one more shard of lifetimes
LOSS_EVERY = 10  # epochs after which the loss is saved, for `epg render` and `epg compare` beside the evolution
OBS_STATS = "obs_mean", "obs_std"  # names of the fixed statistics in checkpoints and artefacts


@dataclass(frozen=True)
class EvolutionResult:
    """What an evolution returns."""

    run: Path
    """The run directory."""
    epoch: int
    """Epochs done."""
    env_steps: int
    """Environment steps spent in all of them."""
    loss_sha256: str
    """Digest of the loss that was saved."""
    phi: np.ndarray
    """The evolved loss parameters, [D]; [0] if only an initial policy for PPO was evolved."""


OnEpoch = Callable[[EpochMetrics], None]


class Evolution:
    """An evolution in progress: the state of the ES, the next epoch, and what was spent."""

    def __init__(
        self, settings: Settings, phi: np.ndarray | None = None, policy_init: np.ndarray | None = None
    ) -> None:
        """Begin at a fresh vector, or at the `phi` and the initial policy of a warm start."""
        self.settings, self.family = settings, find_family(settings.family)
        self.vector = EvolvedVector(settings, self.family.spaces)
        self.start_at(self.vector.initial() if phi is None else self.vector.start(phi, policy_init))
        self._blocks = self.vector.blocks
        self.pool: PolicyPool | None = None
        if settings.evolution.pool:
            width = end_size(self.vector.policy, self.family.spaces)
            self.pool = PolicyPool(settings.evolution.pool, width, settings.seed)
        self.obs_stats: FixedStats | None = None
        self.next_epoch, self.env_steps = 0, 0

    def start_at(self, vector: Array) -> None:
        """Begin the ES at this vector."""
        self.strategy = Strategy(self.settings.evolution, vector, *self.vector.moves)

    @property
    def evolved(self) -> dict[str, np.ndarray]:
        """Return phi and, if it evolves, the initial policy, by their names in the artefact."""
        phi, policy_init = self.vector.split(self.strategy.phi)
        return {"phi": phi} | ({"policy_init": policy_init} if policy_init.size else {})

    def measure(self) -> bool:
        """Measure what the settings need to know of the family; return whether there was anything to measure."""
        settings = self.settings
        if settings.policy.obs_stats == "fixed":
            self.obs_stats, spent = measure_observations(settings)
            self.env_steps += spent
        if settings.has_loss and settings.loss.modulation in ("transitions", "lasting-reward"):
            scale, spent = measure_statistics(settings, self.obs_stats)
            self.env_steps += spent
            self.start_at(self.vector.initial(scale))
        return self.env_steps > 0

    def ask(self) -> np.ndarray:
        """Return the perturbed vectors of the next epoch, [V, D + P]."""
        return self.strategy.ask(run_key(self.settings.seed, Stream.NOISE, self.next_epoch))

    @property
    def measures_phi(self) -> bool:
        """Return whether phi itself is measured in the next epoch."""
        return (self.next_epoch + 1) % PHI_EVERY == 0

    def requests(self, population: np.ndarray) -> list[ShardRequest]:
        """Cut an epoch's W lifetimes, loss by loss and task by task, into shards; one more for phi itself."""
        evolution = self.settings.evolution
        loss, task = assign_tasks(evolution)
        epoch = np.array(self.next_epoch, np.int32)
        alpha = np.array(self.settings.guidance.alpha(self.next_epoch), np.float32)
        phi, policy_init = self.vector.split(population[loss])
        if self.pool is not None:
            policy_init = self.pool.starts(self.next_epoch, int(task.max()) + 1)[task]
        shards = [slice(start, start + evolution.shard) for start in range(0, evolution.lifetimes, evolution.shard)]
        requests = [ShardRequest(phi[it], policy_init[it], task[it], epoch, alpha) for it in shards]
        if self.measures_phi:
            own, init = self.vector.split(np.tile(self.strategy.phi, (evolution.shard, 1)))
            fresh = init if self.pool is None else np.zeros_like(policy_init[: evolution.shard])
            tasks = evolution.lifetimes + np.arange(evolution.shard, dtype=np.int32)  # of no other loss
            requests.append(ShardRequest(own, fresh, tasks, epoch, np.array(0.0, np.float32)))
        return requests

    def tell(self, population: np.ndarray, results: list[ShardResult], seconds: float) -> EpochMetrics:
        """Close an epoch: rank, move phi, and return its metrics."""
        evolution, lifetimes = self.settings.evolution, Lifetimes.of(results)
        aim = lifetimes.fitness + np.float32(evolution.survival) * lifetimes.survived
        table = aim[: evolution.lifetimes].reshape(evolution.noise_vectors, evolution.tasks_per_loss)
        shaped = shape_fitness(table, evolution.task_sharing, evolution.rule)
        cosine = half_cosines(population - self.strategy.phi, shaped, self._blocks)
        self.strategy.tell(population, shaped)
        if self.pool is not None:
            self.pool.add(self.next_epoch, lifetimes.end[: evolution.lifetimes])
        metrics = epoch_metrics(
            self.settings, self.next_epoch, lifetimes, cosine, float(np.linalg.norm(self.strategy.phi)), seconds
        )
        self.next_epoch, self.env_steps = self.next_epoch + 1, self.env_steps + metrics.env_steps
        return metrics

    def tensors(self) -> dict[str, np.ndarray]:
        """Return what a checkpoint needs."""
        pool = {} if self.pool is None else {TENSOR: self.pool.rows}
        return self.strategy.state() | _stats_tensors(self.obs_stats) | pool

    def restore(self, checkpoint: Checkpoint, path: Path) -> None:
        """Continue from a checkpoint of the run at `path`."""
        try:
            self.strategy.restore(checkpoint.tensors)
            self.obs_stats = stats_of(checkpoint.tensors, self.family.spaces.observation)
            if self.pool is not None:
                self.pool.restore(checkpoint.tensors[TENSOR])
            env_steps = checkpoint.info["env_steps"]
            if type(env_steps) is not int or env_steps < 0:
                raise ValueError("env_steps is not a number of steps")
        except (KeyError, ValueError, TypeError) as error:
            raise BadInput(f"the checkpoint of {path} does not fit its config.json: {error}.") from None
        self.next_epoch, self.env_steps = checkpoint.epoch, env_steps

    def save_loss(self, run: Run) -> EvolutionResult:
        """Save the loss artefact: in the run, or before the first epoch in its folder `first`."""
        run.check_place()
        means = [record.get("fitness_mean") for record in read_metrics(run.metrics)] if self.next_epoch else []
        curve = [it if type(it) in (int, float) else None for it in means]  # whatever somebody did to the file
        tensors = self.evolved | _stats_tensors(self.obs_stats)
        digest = save_loss(run.path if self.next_epoch else run.first, tensors, self.manifest(run, curve))
        return EvolutionResult(run.path, self.next_epoch, self.env_steps, digest, tensors["phi"])

    def manifest(self, run: Run, curve: list[float | None]) -> dict[str, Any]:
        """Describe the loss: what it is for and where it came from."""
        return {
            "family": self.settings.family,
            "family_version": self.family.version,
            "spaces": to_dict(self.family.spaces),
            "settings": to_dict(self.settings),
            "seed": self.settings.seed,
            "epochs": self.next_epoch,
            "env_steps": self.env_steps,
            "warm_start": run.config.get("warm_start"),
            "licence": run.config.get("licence"),
            "curve": curve,
        }


def _stats_tensors(obs_stats: FixedStats | None) -> dict[str, np.ndarray]:
    return {} if obs_stats is None else dict(zip(OBS_STATS, (obs_stats.mean, obs_stats.std), strict=True))


def stats_of(tensors: dict[str, np.ndarray], size: int) -> FixedStats | None:
    """Return the fixed observation statistics among tensors, if there are any; ValueError if they are damaged."""
    if not any(name in tensors for name in OBS_STATS):
        return None
    mean, std = (tensors[name] for name in OBS_STATS)
    for value in (mean, std):
        if value.shape != (size,) or value.dtype != np.float32 or not np.isfinite(value).all():
            raise ValueError(f"observation statistics must be {size} finite numbers")
    if not (std > 0).all():
        raise ValueError("a standard deviation of the observations is not above zero")
    return FixedStats(mean, std)


def evolve_run(
    run: Run,
    settings: Settings,
    executor: str = "local",
    processes: int | None = None,
    on_epoch: OnEpoch | None = None,
    cluster: Cluster | None = None,
) -> EvolutionResult:
    """Evolve in a run directory from wherever it stands to the last epoch, saving after every epoch.

    A signal to stop waits for an epoch's bookkeeping; the loss so far is saved, then KeyboardInterrupt is raised. It
    is also saved every ten epochs, to be looked at while the evolution goes on.
    """
    check_executor(executor, processes)
    with run.lock():
        evolution = _resume_or_begin(run, settings)
        _lengthen(run, settings.evolution.epochs)
        if evolution.next_epoch == 0:
            evolution.save_loss(run)
        config = work_config(settings, evolution.obs_stats)
        with (
            MetricsWriter.resume(run, evolution.next_epoch) as metrics,
            make_executor(executor, BUILD, config, processes, run.logs, cluster) as workers,
            CheckpointWriter(run) as writer,
        ):
            try:
                while evolution.next_epoch < settings.evolution.epochs:
                    began, population = time.perf_counter(), evolution.ask()
                    results = workers.map([request.to_arrays() for request in evolution.requests(population)])
                    with uninterrupted():
                        shards = [ShardResult.from_arrays(result) for result in results]
                        epoch = evolution.tell(population, shards, time.perf_counter() - began)
                        metrics.write(epoch.epoch, {k: v for k, v in to_dict(epoch).items() if k != "epoch"})
                        writer.save(evolution.next_epoch, evolution.tensors(), {"env_steps": evolution.env_steps})
                    if evolution.next_epoch % LOSS_EVERY == 0:
                        _save(evolution, run, writer)
                    if on_epoch:
                        on_epoch(epoch)
            except BadInput:
                raise  # most likely of the disk: what is on it stays as it is, and this is the message
            except BaseException:
                if evolution.next_epoch:
                    _save(evolution, run, writer)
                raise
            return _save(evolution, run, writer)


def _lengthen(run: Run, epochs: int) -> None:
    """Write a larger number of epochs into config.json; all else in it stays as it was written."""
    settings = run.config["settings"]
    evolution = settings.get("evolution", {})
    if evolution.get("epochs", epochs) != epochs:
        longer = {**settings, "evolution": {**evolution, "epochs": epochs}}
        write_json(run.path / "config.json", {**run.config, "settings": longer})


def _resume_or_begin(run: Run, settings: Settings) -> Evolution:
    """Continue from the newest intact checkpoint; before the first, measure what the settings ask for and save it."""
    evolution, checkpoint = Evolution(settings), run.load_checkpoint()
    if checkpoint is not None:
        evolution.restore(checkpoint, run.path)
        return evolution
    require("warm_start" not in run.config, f"{run.path} lost its warm start: begin a new run.")
    if evolution.measure():
        run.save_checkpoint(0, evolution.tensors(), {"env_steps": evolution.env_steps})
    return evolution


def _save(evolution: Evolution, run: Run, writer: CheckpointWriter) -> EvolutionResult:
    """Save the loss as it is now, once its checkpoint is on disk."""
    with uninterrupted():
        writer.wait()
        return evolution.save_loss(run)
