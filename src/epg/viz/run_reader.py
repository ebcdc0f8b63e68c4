"""What a run saved, read without JAX: any figure or report can be drawn again on a laptop.

Each reader refuses a file that is missing or not whole, by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epg.core.errors import BadInput, require
from epg.storage.checked import LARGEST, count, interval, read_object, with_keys
from epg.storage.files import read_tensors
from epg.storage.metrics import read_metrics

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Lifetimes:
    """What one method's lifetimes on the compared tasks recorded."""

    name: str
    """Key of the method in results.json."""
    label: str
    """Name of the method in tables and figures."""
    steps_per_update: int
    """M: environment steps between two updates."""
    final: Floats
    """Mean return of the scoring trajectories. [tasks]"""
    episode_return: Floats
    """Return of the episode that ended at this step, NaN where none did. [tasks, steps]"""
    kl: Floats
    """KL of the policy before and after each update. [tasks, updates]"""

    @property
    def steps(self) -> int:
        """Return the environment steps of training."""
        return int(self.episode_return.shape[1])

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Tell which lifetimes stayed finite. NaN in episode_return only means that no episode ended."""
        sound = ~np.isinf(self.episode_return).any(axis=1)
        return np.asarray(np.isfinite(self.final) & np.isfinite(self.kl).all(axis=1) & sound)


@dataclass(frozen=True)
class Epochs:
    """What an evolution recorded, one value per epoch; NaN where it recorded none."""

    epoch: Floats
    """Number of the epoch."""
    fitness_mean: Floats
    """Mean fitness of the population."""
    fitness_std: Floats
    """Standard deviation of fitness in the population."""
    fitness_best: Floats
    """Best fitness in the population."""
    alpha: Floats
    """Guidance."""
    variance_between: Floats
    """Variance of fitness between losses: what evolution selects on."""
    variance_residual: Floats
    """Variance of fitness that neither loss nor task explains: noise."""
    nonfinite: Floats
    """Lifetimes that produced a non-finite number."""
    env_steps: Floats
    """Environment steps taken in the epoch."""
    seconds: Floats
    """Wall clock of the epoch."""

    @property
    def signal_share(self) -> Floats:
        """Divide the variance between losses by the total; NaN where there is none, 0 below zero."""
        total = self.variance_between + self.variance_residual
        share = np.divide(self.variance_between, total, out=np.full_like(total, np.nan), where=total > 0)
        return np.maximum(share, 0.0)  # an unbiased variance estimate can be negative


def read_config(run: Path) -> dict[str, Any]:
    """Read config.json of an evolution."""
    path = run / "config.json"
    config = read_object(path, "kind")
    require(config["kind"] == "evolve", f"{run} is not an evolution: {path} says {config['kind']!r}.")
    with_keys(config, path, ["family", "settings"])
    evolution = with_keys(config["settings"], path, ["evolution"])["evolution"]
    count(with_keys(evolution, path, ["lifetimes"])["lifetimes"], "lifetimes", path)
    return config


def read_results(run: Path) -> dict[str, Any]:
    """Read results.json of a comparison or of learning; a number that was not finite is NaN."""
    path = run / "results.json"
    results = read_object(path, "kind", "family", "tasks", "steps", "seed", "methods")
    for name in ("tasks", "steps"):
        count(results[name], name, path)
    methods = with_keys(results["methods"], path)
    require(len(methods) > 0, f"{path} is damaged: it holds no method.")
    compared = results["kind"] == "compare"
    require(not compared or len(methods) > 1, f"{path} is damaged: a comparison of one method.")
    for number, (name, method) in enumerate(methods.items()):
        with_keys(method, path, ("label", "steps", "updates", "steps_per_update", "tuned", "interval"))
        for what in ("steps", "updates", "steps_per_update"):
            count(method[what], f"{what} of {name}", path)
        require(type(method["tuned"]) is bool, f"{path} is damaged: tuned of {name} is {method['tuned']!r}.")
        transfer = method.setdefault("transfer", [])
        phrases = isinstance(transfer, list) and all(isinstance(it, str) for it in transfer)
        require(phrases, f"{path} is damaged: transfer of {name} is {transfer!r}.")
        method["interval"] = interval(method["interval"], path)
        goals = method.get("goals")
        method["goals"] = None if goals is None else interval(goals, path)
        if number > 0:
            method["difference"] = interval(method.get("difference"), path)
    return results


def read_lifetimes(run: Path) -> list[Lifetimes]:
    """Read curves.safetensors of a comparison or of learning, one record per method of results.json."""
    path, results = run / "curves.safetensors", read_results(run)
    arrays, _ = read_tensors(path)
    methods = []
    for name, method in results["methods"].items():
        parts = [f"{name}/final", f"{name}/episode_return", f"{name}/kl"]
        final, returns, kl = (with_keys(arrays, path, parts)[part] for part in parts)
        require(
            (final.ndim, returns.ndim, kl.ndim) == (1, 2, 2)
            and len(final) == len(returns) == len(kl) == results["tasks"]
            and min(returns.size, kl.size) > 0,
            f"{path} is damaged: the arrays of {name} do not hold the tasks of results.json.",
        )
        methods.append(Lifetimes(name, str(method["label"]), method["steps_per_update"], final, returns, kl))
    return methods


def read_epochs(run: Path) -> Epochs:
    """Read metrics.jsonl of an evolution."""
    path = run / "metrics.jsonl"
    columns = _read_columns(path, Epochs)
    require(len(columns) > 0, f"{path} holds no epoch.")
    return Epochs(*columns)


def read_phi_fitness(run: Path) -> Floats:
    """Read where phi itself was measured: epoch, mean fitness and its standard error, [measurements, 3]."""
    names, path = ("epoch", "phi_fitness", "phi_fitness_error"), run / "metrics.jsonl"
    rows = [[line.get(name) for name in names] for line in read_metrics(path)]
    known = np.array([row for row in rows if all(type(value) in (int, float) for value in row)], float).reshape(-1, 3)
    usual = bool((np.abs(known) <= LARGEST).all() and (known[:, 2] >= 0).all())
    require(usual, f"{path} is damaged: no epoch has such numbers.")
    return known


def read_cosines(run: Path, last: int = 20) -> dict[str, float]:
    """Return per block of phi the mean cosine between half-population gradients over the last epochs."""
    lines = [line.get("cosine") for line in read_metrics(run / "metrics.jsonl")[-last:]]
    found: dict[str, list[float]] = {}
    for line in lines:
        for name, value in (line if isinstance(line, dict) else {}).items():
            if type(value) in (int, float):
                found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _read_columns(path: Path, record: type) -> Floats | tuple[()]:
    """Return each field of a record from lines of JSON, [fields, lines]; empty without lines."""
    names = [field.name for field in fields(record)]
    rows = [[with_keys(line, path, names)[name] for name in names] for line in read_metrics(path)]
    try:
        columns = np.array(rows, dtype=float).T  # null becomes NaN
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path} is damaged: {error}.") from None
    require(bool((np.abs(np.nan_to_num(columns)) <= LARGEST).all()), f"{path} is damaged: no epoch has such numbers.")
    return columns
