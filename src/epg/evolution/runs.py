"""Run directories of an evolution: create one, open one to resume it, let it run for longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epg import __version__
from epg.core.errors import require
from epg.evolution.loop import Evolution, stats_of
from epg.evolution.vector import EvolvedVector
from epg.families.registry import find_family, is_registered
from epg.settings import Settings, flat, from_dict, to_dict
from epg.storage.loss_artefact import check_start
from epg.storage.run import RUN_FORMAT, Run
from epg.warm_starts import load_warm_start


def check_settings(settings: Settings) -> None:
    """Refuse settings that the family contradicts, before anything is written."""
    family = find_family(settings.family)
    EvolvedVector(settings, family.spaces).moves  # noqa: B018


def create_run(settings: Settings, path: Path, start: str | Path | None = None, licence: str | None = None) -> Run:
    """Check the settings against their family, then make the run directory; `start` names a warm start."""
    check_settings(settings)
    config = {
        "format": RUN_FORMAT,
        "kind": "evolve",
        "epg": __version__,
        "family": settings.family,
        "family_version": find_family(settings.family).version,
        "settings": to_dict(settings),
        "licence": licence,
    }
    if start is None:
        return Run.create(path, config)
    warm = load_warm_start(start, settings)
    evolution = Evolution(settings, warm.phi, warm.tensors.get("policy_init"))
    evolution.obs_stats = stats_of(warm.tensors, evolution.family.spaces.observation)
    run = Run.create(path, {**config, "warm_start": warm.source})
    run.save_checkpoint(0, evolution.tensors(), {"env_steps": warm.env_steps})
    return run


def open_run(path: Path, named: str | None = None) -> tuple[Run, Settings]:
    """Open a run to resume it, refusing one whose family has changed since.

    A user's own family is code: it is imported only if the user `named` it, not because a file does.
    """
    run = Run.open(path)
    require(run.config.get("kind") == "evolve", f"{path} is not an evolution: nothing to resume.")
    check_start(run.config.get("warm_start"), str(path / "config.json"))
    settings = from_dict(Settings, run.config.get("settings"), f"{path / 'config.json'}: settings")
    require(
        is_registered(settings.family) or settings.family == named,
        f"{path} evolves a loss for {settings.family!r}: name it as the family to say that its code may run here.",
    )
    check_settings(settings)
    version = find_family(settings.family).version
    require(
        run.config.get("family_version") == version,
        f"{path} was begun with version {run.config.get('family_version')} of {settings.family}, "
        f"and this is version {version}: start a new run.",
    )
    return run, settings


def extend(run: Run, begun: Settings, wanted: Settings) -> tuple[Run, Settings]:
    """Let an opened run continue for more epochs; nothing else may differ from the settings it was begun with."""
    longer = replace(begun, evolution=replace(begun.evolution, epochs=wanted.evolution.epochs))
    changed = [name for name, value in flat(longer).items() if value != flat(wanted)[name]]
    require(
        not changed,
        f"{run.path} keeps its settings when resumed: drop {', '.join('--' + name for name in changed)}, "
        "only --evolution.epochs may grow.",
    )
    before, after = begun.evolution.epochs, wanted.evolution.epochs
    require(after >= before, f"--evolution.epochs of {run.path} may only grow, not from {before} to {after}.")
    return run, longer
