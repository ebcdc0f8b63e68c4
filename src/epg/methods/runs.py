"""Runs of an evolution: make one, begin it with a loss, open it to resume, let it go on for longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epg import __version__
from epg.lifetime.learner import Learned
from epg.methods.evolution import Evolution
from epg.methods.shards import find_family
from epg.parts.artefact import LossArtefact
from epg.parts.families import is_registered
from epg.parts.families.base import Family
from epg.parts.store import RUN_FORMAT, Run
from epg.words.settings import Settings, Spaces, flat, from_dict, require, to_dict


def check_settings(settings: Settings) -> None:
    """Refuse settings that the family contradicts, before anything is written."""
    family = find_family(settings.family)
    Learned(settings.loss, settings.policy, family.spaces).dimension  # noqa: B018 (builds, and so checks)
    width = len(settings.policy.usual_mean)
    require(
        width in (0, family.spaces.observation),
        f"policy.usual_mean needs {family.spaces.observation} numbers for {settings.family}, not {width}.",
    )
    require(
        settings.search.epochs == 0 or not family.spaces.discrete,
        f"search.epochs must be 0 for {settings.family}: its actions are choices, not a vector.",
    )
    require(
        settings.search.epochs == 0 or settings.loss.sides == 1 or None not in (family.orbit, family.place),
        f"search.epochs must be 0 with loss.init_switch or loss.init_sides for {settings.family}: it lacks an orbit, "
        "or the place of a task on it, and so does not say what its sides are.",
    )
    if settings.search.turned:
        _check_turns(settings, family)
    covered = settings.evolution.objective_updates * settings.lifetime.steps_per_update
    require(
        settings.evolution.objective != "last" or covered >= family.horizon,
        f"evolution.objective_updates must cover an episode of {family.horizon} steps, not {covered} steps.",
    )
    require(
        settings.evolution.objective != "lifetime" or settings.lifetime.steps >= family.horizon,
        f"lifetime.updates must cover an episode of {family.horizon} steps, not {settings.lifetime.steps}.",
    )


def _check_turns(settings: Settings, family: Family) -> None:
    turns, sides = family.turns, settings.loss.sides
    require(turns is not None, f"search.turned must be false for {settings.family}: it says of no turns of its body.")
    assert turns is not None
    require(
        sides > 1 and turns.number % sides == 0,
        f"search.turned needs two or more sides (loss.init_sides) of which {turns.number}, the turns of the body in "
        f"{settings.family}, is a multiple; not {sides}.",
    )
    require(
        settings.policy.normalise == "family" and not settings.loss.pairs,
        "search.turned needs policy.normalise family and no loss.pairs: a turn is of raw observations.",
    )


def create_run(settings: Settings, path: Path, start: LossArtefact | None = None) -> Run:
    """Check the settings against their family, then make the run's directory; with `start`, go on from that loss."""
    check_settings(settings)
    if start is not None:
        theirs = from_dict(Settings, start.manifest["settings"], "the loss's settings")
        same, ours = theirs.policy.normalise, settings.policy.normalise
        require(same == ours, f"the loss to start from needs --policy.normalise {same}, not {ours}.")
        settings = _with_usual(settings, theirs)
    family = find_family(settings.family)
    config = {
        "format": RUN_FORMAT,
        "kind": "evolve",
        "epg": __version__,
        "family": settings.family,
        "family_version": family.version,
        "settings": to_dict(settings),
    }
    if start is None:
        return Run.create(path, config)
    evolution = _started(settings, start)
    run = Run.create(path, {**config, "start": start.manifest["sha256"]})
    run.save_checkpoint(0, evolution.strategy.state(), {"env_steps": evolution.env_steps})
    return run


def _with_usual(settings: Settings, other: Settings) -> Settings:
    """Return settings that hold for usual what others do."""
    known = other.policy
    policy = replace(settings.policy, usual_mean=known.usual_mean, usual_deviation=known.usual_deviation)
    return replace(settings, policy=policy)


def _started(settings: Settings, start: LossArtefact) -> Evolution:
    """Return an evolution that begins with a loss instead of a random one; what that cost counts as spent."""
    theirs, ours = from_dict(Settings, start.manifest["settings"], "the loss's settings").loss, settings.loss
    differing = [
        f"--loss.{name} {value}"
        for name, value in flat(theirs).items()
        if value != flat(ours)[name] and name != "window" and not name.startswith("init")
    ]
    require(not differing, f"the loss to start from has other inputs or sizes: set {' '.join(differing)}.")
    spaces = from_dict(Spaces, start.manifest["spaces"], "the loss's spaces")
    require(spaces == find_family(settings.family).spaces, f"the loss to start from does not fit {settings.family}.")
    evolution = Evolution(settings, start.phi)
    evolution.env_steps = start.manifest["env_steps"]
    return evolution


def open_run(path: Path, named: str | None = None) -> tuple[Run, Settings]:
    """Open a run to resume it, refusing one whose family has changed since.

    A family of the user's own is code: it is imported only if the user has `named` it, not because a file does.
    """
    run = Run.open(path)
    require(run.config.get("kind") == "evolve", f"{path} is not an evolution: nothing to resume.")
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
    """Let an opened run go on for more epochs; nothing else may differ from what it was begun with."""
    if wanted.policy.to_be_measured:
        wanted = _with_usual(wanted, begun)
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
