"""Several evolutions that differ only in their seed, `epg evolve --seeds N`: one table, one figure, one page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from epg.core.errors import require
from epg.viz.run_reader import read_config, read_epochs, read_phi_fitness

LAST = 10  # epochs whose mean fitness is a run's: one alone is noisy
FOLDER = "seed-"


@dataclass(frozen=True)
class SeedSummary:
    """What one of the evolutions came to."""

    seed: int
    run: Path
    """Its run directory."""
    family: str
    epochs: int
    env_steps: int
    fitness_first: float
    """Mean fitness of the population in the first epoch."""
    fitness_last: float
    """Mean fitness of the population, mean of the last ten epochs."""
    phi_fitness: float | None
    """Newest fitness of phi itself, without noise; None before the tenth epoch."""
    phi_error: float | None
    """Its standard error."""


def seed_runs(place: Path) -> list[Path]:
    """Return the runs of several seeds below a directory that have done an epoch, in the order of their seeds."""
    if not os.path.isdir(place) or os.path.isfile(place / "config.json"):
        return []
    found = [it for it in place.glob(f"{FOLDER}*") if os.path.isfile(it / "config.json") and _has_begun(it)]
    numbers = {it: it.name.removeprefix(FOLDER) for it in found}
    return sorted((it for it in found if numbers[it].isdecimal()), key=lambda it: int(numbers[it]))


def _has_begun(run: Path) -> bool:
    metrics = run / "metrics.jsonl"
    return os.path.isfile(metrics) and os.path.getsize(metrics) > 0


def summarise_seeds(place: Path) -> list[SeedSummary]:
    """Return a line per evolution."""
    runs = seed_runs(place)
    require(len(runs) > 0, f"{place} holds no run {FOLDER}N with an epoch: `epg evolve FAMILY --seeds N` makes some.")
    return [_summarise(run) for run in runs]


def _summarise(run: Path) -> SeedSummary:
    config, epochs, phi = read_config(run), read_epochs(run), read_phi_fitness(run)
    newest = (None, None) if not len(phi) else (float(phi[-1, 1]), float(phi[-1, 2]))
    return SeedSummary(
        int(run.name.removeprefix(FOLDER)),
        run,
        str(config["family"]),
        len(epochs.epoch),
        int(np.nansum(epochs.env_steps)),
        float(epochs.fitness_mean[0]),
        float(np.mean(epochs.fitness_mean[-LAST:])),
        *newest,
    )
