"""The verbs, for Python and for the command line: evolve, learn, compare, baseline, check, report, render.

JAX is imported by the verbs that need it, inside them: naming a verb costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epg import __version__
from epg.parts.artefact import LossArtefact
from epg.parts.executors import Cluster, check_executor
from epg.parts.families import is_registered
from epg.parts.files import encode_tensors, write_atomic, write_json
from epg.parts.store import Run, check_vacant
from epg.people.losses import load_loss
from epg.people.presets import PRESETS, PresetName, opponent, preset
from epg.words.runtime import use_single_thread
from epg.words.settings import Settings, from_dict, require, to_dict

if TYPE_CHECKING:
    from epg.methods.evaluation import Learning
    from epg.methods.evolution import Epoch, Evolved
    from epg.parts.families.check import Check

RUNS = Path("runs")


def new_run_path(what: str) -> Path:
    """Return a fresh directory below runs/, named by time and purpose."""
    return RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{what.replace(':', '.')}"


def settings_for(family: str, name: PresetName, seed: int) -> Settings:
    """Return a preset's settings for a family."""
    require(name in PRESETS, f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}.")
    return replace(preset(family, name), seed=seed)


def prepare(
    settings: Settings | None,
    run: str | Path | None = None,
    resume: bool = False,
    executor: str = "local",
    processes: int | None = None,
    cluster: Cluster | None = None,
    start: str | Path | LossArtefact | None = None,
) -> tuple[Run, Settings]:
    """Check everything that can be wrong, then make the run's directory, or open the one to resume."""
    use_single_thread()
    from epg.methods import runs

    check_executor(executor, processes, cluster)
    if not resume:
        require(settings is not None, "name a family, or give settings.")
        assert settings is not None
        begin = load_loss(start) if isinstance(start, str | Path) else start
        path = Path(run or new_run_path(f"evolve-{settings.family}"))
        created = runs.create_run(settings, path, begin)
        return created, from_dict(Settings, created.config["settings"])
    require(start is None, "a run that is resumed has started: drop start.")
    require(run is not None, "resume needs run: the directory of the run to go on with.")
    opened, begun = runs.open_run(Path(str(run)), settings.family if settings else None)
    return runs.extend(opened, begun, settings) if settings else (opened, begun)


def evolve(
    family: str | None = None,
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
    start: str | Path | LossArtefact | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Evolved:
    """Evolve a loss for a family (Algorithm 1) and save it in a run directory.

    Name a family and a preset, or give `settings` in full. With `resume`, `run` goes on from its newest
    checkpoint with the settings it was begun with; only a larger number of epochs may be asked for. The
    `executor` is "inline", "local" or "ray"; `address` says which Ray, by default one of this run's own, and
    `cpus` how many of its CPUs each process takes. With `start`, evolution begins with that loss instead of a
    random one: to go on with other settings, or in a family of your own.
    """
    cluster = Cluster(address, cpus)
    if settings is None and family is not None:
        settings = settings_for(family, preset, seed)
    opened, settings = prepare(settings, run, resume, executor, processes, cluster, start)
    from epg.methods.evolution import evolve_run

    return evolve_run(opened, settings, executor, processes, on_epoch, cluster)


def learn(
    loss: str | Path | LossArtefact,
    family: str | None = None,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    run: str | Path | None = None,
) -> dict[str, Any]:
    """Train fresh policies with a loss on held-out tasks (Algorithm 2), and save their curves."""
    use_single_thread()
    from epg.methods import evaluation

    _check_place(run)
    artefact = loss if isinstance(loss, LossArtefact) else load_loss(loss)
    family = family or _own_family(artefact)
    learning = evaluation.learn_with_loss(artefact, family, tasks, seed, updates)
    config = {"loss": artefact.manifest["sha256"], "settings": artefact.manifest["settings"]}
    return _save([learning], family, seed, run, config)


def baseline(
    name: str,
    family: str,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    run: str | Path | None = None,
) -> dict[str, Any]:
    """Train fresh policies with a hand-made learner, in its tuned settings, on held-out tasks."""
    use_single_thread()
    from epg.methods import evaluation

    _check_place(run)
    settings = opponent(evaluation.with_length(preset(family, "laptop"), updates), family)
    learning = evaluation.learn_by_hand(settings, name, family, tasks, seed)
    return _save([learning], family, seed, run, {"settings": to_dict(settings)})


def compare(
    family: str,
    loss: str | Path | LossArtefact,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    ppo_steps: int | None = None,
    run: str | Path | None = None,
) -> dict[str, Any]:
    """Set a loss against tuned PPO: the same held-out tasks, initial policies and, unless told, number of steps."""
    use_single_thread()
    from epg.methods import evaluation

    _check_place(run)
    artefact = loss if isinstance(loss, LossArtefact) else load_loss(loss)
    settings = opponent(evaluation.with_length(evaluation.settings_of(artefact), updates), family, ppo_steps)
    ours = evaluation.learn_with_loss(artefact, family, tasks, seed, updates)
    theirs = evaluation.learn_by_hand(settings, "ppo", family, tasks, seed)
    config = {
        "loss": artefact.manifest["sha256"],
        "settings": artefact.manifest["settings"],
        "opponent": to_dict(settings),
    }
    return _save([ours, theirs], family, seed, run, config)


def _own_family(loss: LossArtefact | None) -> str:
    """Return the family that a loss names: module:attribute would import code, and a manifest has no say in that."""
    assert loss is not None
    family: str = loss.manifest["family"]
    require(
        is_registered(family), f"the loss is for {family!r}: name it as --family to say that its code may run here."
    )
    return family


def _check_place(run: str | Path | None) -> None:
    """Refuse a place for results before minutes are spent on them."""
    if run is not None:
        check_vacant(Path(run))


def _save(
    learnings: list[Learning], family: str, seed: int, run: str | Path | None, config: dict[str, Any]
) -> dict[str, Any]:
    """Write a run directory of recorded lifetimes with its figure and report; return the table."""
    from epg.methods.evaluation import curves, table
    from epg.people.report import write_report

    result = table(learnings, family, seed)
    path = Path(run or new_run_path(f"{result['kind']}-{family}"))
    about = {"format": 1, "kind": result["kind"], "epg": __version__, "family": family}
    opened = Run.create(path, {**about, **config})
    write_atomic(path / "curves.safetensors", encode_tensors(curves(learnings), {}))
    write_json(path / "results.json", result)
    write_report(opened.path)
    return {"run": str(path), **result}


def check(family: str) -> list[Check]:
    """Ask a family, registered or `module:attribute`, every question of the public checker."""
    use_single_thread()
    from epg.parts.families import load_family
    from epg.parts.families.check import check_family

    return check_family(load_family(family))


def report(run: str | Path) -> Path:
    """Draw a run's figures and its HTML report anew, from what it saved; needs no JAX."""
    from epg.people.report import write_report

    return write_report(Run.open(run).path)


def render(
    loss: str | Path | None = None,
    family: str | None = None,
    *,
    baseline: str | None = None,
    task: int = 0,
    stages: int = 5,
    seed: int = 0,
    updates: int | None = None,
    out: str | Path | None = None,
    video: bool = True,
) -> dict[str, Any]:
    """Film a policy that a loss, or a hand-made learner, trains on a held-out task, at stages of its lifetime."""
    require((loss is None) != (baseline is None), "name either a loss or --baseline: one of them trains the policy.")
    require(loss is not None or family is not None, "--baseline needs --family: where to film it.")
    use_single_thread()
    from epg.methods import evaluation, filming
    from epg.people.film import check_place, write_film

    base = Path(loss) if loss is not None and Path(loss).is_dir() else RUNS
    artefact = load_loss(loss) if loss is not None else None
    family = family or _own_family(artefact)
    filming.find_stage_family(family)
    place = Path(out or base / new_run_path(f"render-{family}").name)
    check_place(place)
    if artefact is not None:
        teacher, source = filming.teach_with_loss(artefact, family, updates), artefact.manifest["sha256"]
    else:
        settings = opponent(evaluation.with_length(preset(family, "laptop"), updates), family)
        teacher, source = filming.teach_by_hand(settings, str(baseline), family), None
    made = filming.film(teacher, family, seed, task, stages)
    title = f"{family}, held-out task {task}: trained by {'the ' if artefact else ''}{teacher.label}"
    about = {"format": 1, "kind": "render", "epg": __version__, "family": family, "task": task, "seed": seed}
    config = {**about, "loss": source, "settings": to_dict(teacher.settings)}
    return {"run": str(place), **about, **write_film(made, title, place, video, config)}


def picture(family: str, place: str | Path) -> Path:
    """Draw some tasks of a MuJoCo family side by side, into a PNG."""
    use_single_thread()
    from epg.people.film import write_picture

    return write_picture(family, Path(place))
