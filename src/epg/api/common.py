"""What several verbs share: where runs go, which family a loss trains in, and how results are saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from epg import __version__
from epg.core.errors import require
from epg.families.registry import SESSION, is_registered, name_of
from epg.recipes import ppo_settings, recipe_of
from epg.settings import Settings, from_dict
from epg.storage.files import encode_tensors, make_directory, write_atomic, write_json
from epg.storage.loss_artefact import LossArtefact
from epg.storage.metrics import MetricsWriter
from epg.storage.policy_artefact import POLICIES
from epg.storage.run import RUN_FORMAT, Run, check_vacant, new_run
from epg.zoo import load_loss

if TYPE_CHECKING:
    from epg.evaluation.protocol import Method, MethodResult
    from epg.evaluation.result import LearningResult
    from epg.evaluation.updates import BatchUpdate, OnUpdate

RUNS = Path("runs")
LIFETIMES = 3
"""Lifetimes per task in tables: a single one hangs on rounding where bodies fall."""
PAPER_STEPS = 8192
"""PPO is also given this many steps in comparisons: the paper's shortest lifetime."""
FamilyLike = Any
"""A family: its name, `module:attribute`, the object, or a class that makes one without arguments."""


def new_run_path(purpose: str) -> Path:
    """Return a new directory below runs/, named by time and purpose."""
    return RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{purpose.replace(':', '.')}"


def about(kind: str, family: str) -> dict[str, Any]:
    return {"format": RUN_FORMAT, "kind": kind, "epg": __version__, "family": family}


def check_run_path(run: str | Path | None) -> None:
    """Refuse a place for results before minutes are spent on them."""
    if run is not None:
        check_vacant(Path(run))


def check_reachable(family: str, executor: str) -> None:
    """Refuse a family that worker processes could not import."""
    require(
        executor == "inline" or not family.startswith(SESSION),
        f"the family {family.removeprefix(SESSION)} was made in this session, where worker processes cannot import it: "
        "write it into a module and import it from there, or choose executor='inline'.",
    )


def own_family(loss: LossArtefact) -> str:
    """Return the family that a loss names. `module:attribute` would import code, which a manifest must not decide."""
    family: str = loss.manifest["family"]
    require(
        is_registered(family), f"the loss is for {family!r}: name it as --family to say that its code may run here."
    )
    return family


def open_loss(loss: str | Path | LossArtefact, family: FamilyLike, run: str | Path | None) -> tuple[LossArtefact, str]:
    """Return a loss and the family it trains in; refuse before minutes are spent."""
    check_run_path(run)
    artefact = loss if isinstance(loss, LossArtefact) else load_loss(loss)
    return artefact, own_family(artefact) if family is None else name_of(family)


def origin(loss: LossArtefact) -> dict[str, Any]:
    return {"loss": loss.manifest["sha256"], "settings": loss.manifest["settings"]}


def ppo_for(settings: Settings, steps: int | None, has_stats: bool) -> tuple[Settings, bool]:
    """Return PPO's settings for a family, and whether they were tuned for it."""
    recipe = recipe_of(settings.family)
    tuning = recipe.tuned_ppo(steps or settings.lifetime.steps)
    return ppo_settings(settings, tuning, steps, has_stats), bool(recipe.ppo)


def resumed_settings(run: Path, family: str) -> Settings:
    """Return the settings of a run to resume, refusing one of another family."""
    settings = from_dict(Settings, Run.open(run).config.get("settings"), f"{run / 'config.json'}: settings")
    require(family == settings.family, f"{run} is a run for {settings.family}, not for {family}.")
    return settings


class HeldOut(NamedTuple):
    """Which lifetimes are recorded."""

    tasks: int
    seed: int
    lifetimes: int


def record_methods(
    methods: Sequence[Method],
    held_out: HeldOut,
    run: str | Path | None,
    config: dict[str, Any],
    on_update: OnUpdate | None = None,
) -> LearningResult:
    """Record lifetimes of methods on the same tasks in a new run directory, with metrics while they run."""
    from epg.evaluation.protocol import record

    family, kind = methods[0].settings.family, "learn" if len(methods) == 1 else "compare"
    path = Path(run or new_run_path(f"{kind}-{family}"))
    with new_run(path, {**about(kind, family), **config}) as made:
        with MetricsWriter(made) as metrics:

            def tell(update: BatchUpdate) -> None:
                metrics.write_update(update.curve, update.env_steps, update.values)
                if on_update is not None:
                    on_update(update)

            tasks, seed, lifetimes = held_out
            results = [record(it, tasks, seed, lifetimes=lifetimes, on_update=tell) for it in methods]
        return write_results(results, family, seed, made)


def write_results(results: list[MethodResult], family: str, seed: int, run: Run) -> LearningResult:
    """Write recorded lifetimes into a run that is locked, with their policies, figure and report."""
    from epg.evaluation.protocol import curves, table
    from epg.evaluation.result import LearningResult
    from epg.policies.trained import save_policies
    from epg.viz.report import write_report

    summary, path = table(results, family, seed), run.path
    run.check_place()
    make_directory(path / POLICIES)
    write_atomic(path / "curves.safetensors", encode_tensors(curves(results), {}))
    for method in results:
        save_policies(path / POLICIES / method.method, method.policies)
    write_json(path / "results.json", summary)
    write_report(path)
    return LearningResult(path, family, seed, {it.method: it for it in results}, summary)
