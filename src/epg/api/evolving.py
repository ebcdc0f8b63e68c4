"""`evolve`, and what comes before it: settings, an estimate, a run directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from epg.api.common import FamilyLike, check_reachable, new_run_path, resumed_settings
from epg.core.errors import require
from epg.executors import Cluster, check_executor
from epg.families.registry import name_of
from epg.recipes import PresetName, preset
from epg.settings import EvolveInit, Settings, with_values
from epg.storage.config_file import read_settings
from epg.storage.run import Run
from epg.zoo import ZOO, zoo_names

if TYPE_CHECKING:
    from epg.evolution.estimate import Estimate
    from epg.evolution.loop import EpochMetrics, EvolutionResult


def evolve(
    family: FamilyLike = None,
    *,
    preset: PresetName = "laptop",
    seed: int = 0,
    settings: Settings | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    executor: str = "local",
    processes: int | None = None,
    address: str | None = None,
    cpus: float = 1.0,
    start: str | Path | None = None,
    licence: str | None = None,
    on_epoch: Callable[[EpochMetrics], None] | None = None,
) -> EvolutionResult:
    """Evolve a loss for a family (Algorithm 1) and save it in a run directory.

    Name a family and a preset, or give `settings` in full. With `resume`, `run` continues from its newest checkpoint
    with the settings it was begun with; `settings` may ask for a larger number of epochs only. The `executor` is
    "inline", "local" or "ray"; `address` says which Ray cluster (by default one of this run's own) and `cpus` how many
    of its CPUs each process takes. `start` names a warm start: a loss, or a linear policy that the loss teaches at
    first. `licence` is written into the loss's manifest; without it none is stated: the loss is yours.
    """
    cluster = Cluster(address, cpus)
    if settings is None and family is not None:
        family = name_of(family)
        settings = settings_for(family, preset, seed)
        if resume and run is not None:
            settings = resumed_settings(Path(run), family)
            require(seed in (0, settings.seed), f"{run} keeps its seed when resumed: drop seed.")
    opened, settings = prepare(settings, run, resume, executor, processes, cluster, start, licence)
    return continue_run(opened, settings, executor, processes, on_epoch, cluster)


def prepare(
    settings: Settings | None,
    run: str | Path | None = None,
    resume: bool = False,
    executor: str = "local",
    processes: int | None = None,
    cluster: Cluster | None = None,
    start: str | Path | None = None,
    licence: str | None = None,
) -> tuple[Run, Settings]:
    """Check everything that can be wrong, then make the run directory, or open the one to resume."""
    from epg.evolution import runs

    given = settings is None or isinstance(settings, Settings)
    require(given, "settings must be those of epg.preset or epg.load_settings.")
    require(licence is None or isinstance(licence, str), f"licence must be a text, not {licence!r}.")
    check_executor(executor, processes, cluster)
    check_reachable(settings.family if settings else "", executor)
    if not resume:
        require(settings is not None, "name a family, or give settings.")
        assert settings is not None
        path = Path(run or new_run_path(f"evolve-{settings.family}"))
        return runs.create_run(settings, path, None if start is None else _path_of(start), licence), settings
    require(start is None, "a run that is resumed has its start already: drop start.")
    require(licence is None, "a run that is resumed has its licence already: drop licence.")
    require(run is not None, "resume needs run: the directory of the run to continue.")
    opened, begun = runs.open_run(Path(str(run)), settings.family if settings else None)
    return runs.extend(opened, begun, settings) if settings else (opened, begun)


def _path_of(start: str | Path) -> Path:
    """Return the path of a warm start: a path, or the name of a loss in the zoo."""
    return ZOO / str(start) if str(start) in zoo_names() and not os.path.exists(start) else Path(start)


def continue_run(
    run: Run,
    settings: Settings,
    executor: str = "local",
    processes: int | None = None,
    on_epoch: Callable[[EpochMetrics], None] | None = None,
    cluster: Cluster | None = None,
) -> EvolutionResult:
    """Evolve in a prepared run to its last epoch."""
    from epg.evolution.loop import evolve_run

    return evolve_run(run, settings, executor, processes, on_epoch, cluster)


def settings_for(family: str, name: PresetName, seed: int, evolve_init: EvolveInit = "none") -> Settings:
    """Return a preset's settings for a family, and for PPO+I those of tuned PPO."""
    return preset(family, name, seed=seed, evolve_init=evolve_init)


def load_settings(config: str | Path, family: FamilyLike = None, name: PresetName = "laptop") -> Settings:
    """Return the settings of a run or a file (JSON, TOML); what it leaves open is that of the family's preset."""
    given = read_settings(Path(config))
    family = given.get("family") if family is None else name_of(family)
    require(isinstance(family, str), f"{config} names no family: name it before the options.")
    return with_values(preset(str(family), name), {**given, "family": family}, str(config))


def estimate(settings: Settings, processes: int | None = None) -> Estimate:
    """Count the lifetimes and steps of an evolution, and guess its time."""
    from epg.evolution.estimate import estimate as count
    from epg.evolution.runs import check_settings

    check_executor("local", processes)
    check_settings(settings)
    return count(settings, processes)
