"""`probe`, `report`, `render`, `watch`, `check`: look at a loss, a run or a family."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from epg.api.common import RUNS, FamilyLike, about, new_run_path, open_loss, origin, own_family, ppo_for
from epg.core.errors import require
from epg.evaluation.transfer import Transfer, with_updates
from epg.families.registry import REGISTRY, name_of
from epg.recipes import preset
from epg.settings import to_dict
from epg.storage.card_file import CARD
from epg.storage.files import write_json
from epg.storage.loss_artefact import LossArtefact
from epg.storage.metrics import MetricsWriter
from epg.storage.run import Run, new_run
from epg.zoo import load_loss

if TYPE_CHECKING:
    from epg.evaluation.family_check import Check
    from epg.evaluation.probe import LossCard
    from epg.families.base import Family
    from epg.viz.film import FilmResult
    from epg.viz.seeds import SeedSummary
    from epg.viz.watch import WatchServer


def families(name: str | None = None) -> list[Family]:
    """Return all registered families, or the one of this name."""
    from epg.families.registry import find_family

    return [find_family(it) for it in ([name] if name else REGISTRY)]


def check(family: FamilyLike) -> list[Check]:
    """Check a family, registered or `module:attribute`, against the contract."""
    from epg.evaluation.family_check import check_family
    from epg.families.registry import load

    return check_family(load(name_of(family)))


def probe(
    loss: str | Path | LossArtefact,
    family: FamilyLike = None,
    *,
    tasks: int = 32,
    seed: int = 0,
    run: str | Path | None = None,
    on_probe: Callable[[str], None] = lambda name: None,
) -> LossCard:
    """Measure a loss card: what the loss is, under changes of history, interface, architecture and length."""
    artefact, family = open_loss(loss, family, run)
    from epg.evaluation.gradients import measure_gradients
    from epg.evaluation.probe import LossCard, Probe

    results, prepared = [], Probe.of(artefact, family, tasks, seed)
    path = Path(run or new_run_path(f"probe-{family}"))
    with new_run(path, {**about("probe", family), **origin(artefact)}) as made:
        with MetricsWriter(made) as metrics:
            for result in prepared.results():
                results.append(result)
                curve = "lengths" if result.group == "length" else result.name
                metrics.write_update(curve, result.steps, {"final_return": result.interval.value})
                on_probe(f"{len(results)} probes done, the last: {result.name}")
        gradients = measure_gradients(artefact, family, tasks, seed)
        card = LossCard(path, family, seed, artefact.manifest["sha256"], tuple(results), gradients)
        made.check_place()
        write_json(path / CARD, card.to_dict())
        report(path)
    if isinstance(loss, str | Path) and os.path.isdir(loss) and family == artefact.manifest["family"]:
        write_json(Path(loss) / CARD, card.to_dict())  # beside the loss: `epg losses` and its report show it
    return card


def report(run: str | Path) -> Path:
    """Draw a run's figures and its HTML report again, from what it saved; needs no JAX.

    A directory of several seeds (`epg evolve --seeds N`) gets a page about all of them, and each run its own.
    """
    from epg.viz.report import write_report

    seeds = seed_runs(run)
    for it in seeds:
        write_report(it)
    return write_report(Path(run) if seeds else Run.open(run).path)


def seed_runs(runs: str | Path) -> list[Path]:
    """Return the runs of a directory of several seeds that have done an epoch; [] if it is no such directory."""
    from epg.viz import seeds

    return seeds.seed_runs(Path(runs))


def summarise_seeds(runs: str | Path) -> list[SeedSummary]:
    """Return a line per evolution of a directory of several seeds."""
    from epg.viz import seeds

    return seeds.summarise_seeds(Path(runs))


def render(
    loss: str | Path | None = None,
    family: FamilyLike = None,
    *,
    baseline: str | None = None,
    task: int = 0,
    stages: int = 5,
    seed: int = 0,
    updates: int | None = None,
    out: str | Path | None = None,
    video: bool = True,
) -> FilmResult:
    """Film a policy that a loss, PPO or REINFORCE trains on a held-out task, at stages of its lifetime."""
    require((loss is None) != (baseline is None), "name either a loss or --baseline: one of them trains the policy.")
    require(loss is not None or family is not None, "--baseline needs --family: where to film it.")
    from epg.evaluation import protocol
    from epg.viz import recording
    from epg.viz.film import check_out, write_film

    base = Path(loss) if loss is not None and os.path.isdir(loss) else RUNS
    artefact = load_loss(loss) if loss is not None else None
    if family is None:
        assert artefact is not None
        family = own_family(artefact)
    family = name_of(family)
    recording.find_mujoco_family(family)
    directory = Path(out or base / new_run_path(f"render-{family}").name)
    check_out(directory)
    if artefact is not None:
        filmed, source = protocol.loss_method(artefact, family, Transfer(updates)), artefact.manifest["sha256"]
    else:
        settings, _ = ppo_for(with_updates(preset(family, "laptop"), updates), None, False)
        filmed, source = protocol.policy_gradient_method(settings, str(baseline)), None
    film = recording.record_film(filmed, seed, task, stages)
    title = f"{family}, held-out task {task}: trained by {'the ' if artefact else ''}{filmed.label}"
    subject = {**about("render", family), "task": task, "seed": seed}
    return write_film(film, title, directory, video, {**subject, "loss": source, "settings": to_dict(filmed.settings)})


def watch(run: str | Path, port: int = 0) -> WatchServer:
    """Return the server of a live page about an evolution, on this machine only; call its `serve_forever`."""
    from epg.viz.watch import WatchServer

    return WatchServer(run, port)


def picture(family: FamilyLike, path: str | Path) -> Path:
    """Draw some tasks of a MuJoCo family side by side, into a PNG."""
    from epg.viz.film import write_picture

    return write_picture(name_of(family), Path(path))
