"""The verbs, for Python and for the command line: evolve, learn, baseline, compare, check, report, render, bench, demo.

JAX is imported by the verbs that need it, inside them: naming a verb costs nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epg import __version__
from epg.bench import bench
from epg.core.errors import require
from epg.evaluation.verdict import verdicts
from epg.executors import Cluster, ExecutorFailed, check_executor
from epg.families.registry import REGISTRY, SESSION, is_registered, name_of
from epg.recipes import PresetName, meta_learner, ppo_settings, preset, recipe_of
from epg.settings import Settings, from_dict, to_dict, with_values
from epg.storage.config_file import read_settings
from epg.storage.files import encode_tensors, write_atomic, write_json
from epg.storage.loss_artefact import LossArtefact
from epg.storage.policy_artefact import POLICIES
from epg.storage.run import RUN_FORMAT, Run, check_vacant
from epg.zoo import ZOO, list_losses, load_loss, zoo_names

if TYPE_CHECKING:
    from epg.envs.play import Episodes
    from epg.evaluation.family_check import Check
    from epg.evaluation.protocol import MethodResult
    from epg.evaluation.result import LearningResult
    from epg.evolution.estimate import Estimate
    from epg.evolution.loop import EpochMetrics, EvolutionResult
    from epg.families.base import Family
    from epg.policies.trained import TrainedPolicy
    from epg.settings import MamlSettings, RL2Settings
    from epg.viz.watch import WatchServer

__all__ = ["Cluster", "ExecutorFailed", "PresetName", "bench", "check_vacant", "list_losses", "verdicts"]

RUNS = Path("runs")
LIFETIMES = 3
"""Lifetimes per task in tables: a single one hangs on rounding where bodies fall."""
PAPER_STEPS = 8192
"""PPO is also given this many steps in comparisons: the paper's shortest lifetime."""


def new_run_path(purpose: str) -> Path:
    """Return a new directory below runs/, named by time and purpose."""
    return RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{purpose.replace(':', '.')}"


FamilyLike = Any
"""A family: its name, `module:attribute`, the object, or a class that makes one without arguments."""


def families(name: str | None = None) -> list[Family]:
    """Return all registered families, or the one of this name."""
    from epg.families.registry import find_family

    return [find_family(it) for it in ([name] if name else REGISTRY)]


def prepare(
    settings: Settings | None,
    run: str | Path | None = None,
    resume: bool = False,
    executor: str = "local",
    processes: int | None = None,
    cluster: Cluster | None = None,
    start: str | Path | None = None,
) -> tuple[Run, Settings]:
    """Check everything that can be wrong, then make the run directory, or open the one to resume."""
    from epg.evolution import runs

    check_executor(executor, processes, cluster)
    _check_reachable(settings.family if settings else "", executor)
    if not resume:
        require(settings is not None, "name a family, or give settings.")
        assert settings is not None
        path = Path(run or new_run_path(f"evolve-{settings.family}"))
        return runs.create_run(settings, path, None if start is None else _path_of(start)), settings
    require(start is None, "a run that is resumed has its start already: drop start.")
    require(run is not None, "resume needs run: the directory of the run to continue.")
    opened, begun = runs.open_run(Path(str(run)), settings.family if settings else None)
    return runs.extend(opened, begun, settings) if settings else (opened, begun)


def _check_reachable(family: str, executor: str) -> None:
    """Refuse a family that worker processes could not import."""
    require(
        executor == "inline" or not family.startswith(SESSION),
        f"the family {family.removeprefix(SESSION)} was made in this session, where worker processes cannot import it: "
        "write it into a module and import it from there, or choose executor='inline'.",
    )


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
    on_epoch: Callable[[EpochMetrics], None] | None = None,
) -> EvolutionResult:
    """Evolve a loss for a family (Algorithm 1) and save it in a run directory.

    Name a family and a preset, or give `settings` in full. With `resume`, `run` continues from its newest checkpoint
    with the settings it was begun with; `settings` may ask for a larger number of epochs only. The `executor` is
    "inline", "local" or "ray"; `address` says which Ray cluster (by default one of this run's own) and `cpus` how many
    of its CPUs each process takes. `start` names a warm start: a loss, or a linear policy that the loss teaches at
    first.
    """
    cluster = Cluster(address, cpus)
    if settings is None and family is not None:
        family = name_of(family)
        settings = settings_for(family, preset, seed)
        if resume and run is not None:
            settings = resumed_settings(Path(run), family)
            require(seed in (0, settings.seed), f"{run} keeps its seed when resumed: drop seed.")
    opened, settings = prepare(settings, run, resume, executor, processes, cluster, start)
    return continue_run(opened, settings, executor, processes, on_epoch, cluster)


def settings_for(family: str, name: PresetName, seed: int) -> Settings:
    """Return a preset's settings for a family."""
    return preset(family, name, seed=seed)


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


def draw_seeds(runs: Sequence[Path], where: str | Path) -> list[Path]:
    """Draw the fitness of several evolutions of one family together (Fig. 20's band)."""
    from epg.viz.curves import fitness_over_epochs

    return fitness_over_epochs(runs, Path(where))


def learn(
    loss: str | Path | LossArtefact,
    family: FamilyLike = None,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
) -> LearningResult:
    """Train fresh policies with a loss on held-out tasks (Algorithm 2), and save their curves."""
    artefact, family = _open(loss, family, run)
    from epg.evaluation.protocol import loss_method, record

    result = record(loss_method(artefact, family, updates), tasks, seed, lifetimes=lifetimes)
    return _save([result], family, seed, run, _origin(artefact))


def baseline(
    name: str,
    family: FamilyLike,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
) -> LearningResult:
    """Train fresh policies with PPO or REINFORCE, in PPO's tuned settings, on held-out tasks."""
    from epg.evaluation import protocol

    _check_run_path(run)
    family = name_of(family)
    settings, tuned = _ppo(protocol.with_updates(preset(family, "laptop"), updates), None, False)
    method = protocol.policy_gradient_method(settings, name, None, tuned and name == "ppo")
    result = protocol.record(method, tasks, seed, lifetimes=lifetimes)
    return _save([result], family, seed, run, {"settings": to_dict(settings)})


def train_baseline(
    name: str,
    family: FamilyLike,
    *,
    env_steps: int | None = None,
    seed: int = 0,
    tasks: int = 20,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
    resume: bool = False,
    options: MamlSettings | RL2Settings | None = None,
    executor: str = "local",
    processes: int | None = None,
    on_step: Callable[[Any], None] | None = None,
) -> LearningResult:
    """Train a baseline on training tasks within a number of environment steps; score it on held-out ones.

    `fixed` is the best fixed linear policy by random search: what a user would deploy instead of a learning rule
    (domain randomization). `maml` is an initial policy for policy-gradient steps, `rl2` a recurrent policy. With
    `resume`, `run` continues with the budget and the seed it was begun with. `options` replace the recipe's.
    """
    from epg.baselines import registry
    from epg.evaluation import protocol
    from epg.evaluation.trained_policies import policy_methods

    check_executor(executor, processes)
    family = name_of(family)
    _check_reachable(family, executor)
    require(tasks > 0, f"tasks must be above zero, not {tasks}.")
    require(name in registry.BASELINES, f"unknown baseline {name!r}: choose one of {', '.join(registry.BASELINES)}.")
    if resume:
        require(run is not None, "resume needs run: the directory of the run to continue.")
        require(env_steps is None and seed == 0, f"{run} keeps its budget and its seed when resumed: drop them.")
        opened, settings = Run.open(str(run)), resumed_settings(Path(str(run)), family)
    else:
        require(env_steps is not None, "training a baseline needs env_steps: its budget.")
        settings = settings_for(family, "laptop", seed)
        chosen = _baseline_options(name, settings, int(env_steps or 0), options)
        opened = registry.start(name, settings, chosen, Path(run or new_run_path(f"{name}-{family}")))
    trained = registry.finish(name, opened, on_step, executor, processes)
    methods = policy_methods(trained, settings)
    results = [protocol.record(it, tasks, settings.seed, lifetimes=lifetimes) for it in methods]
    return _write(results, family, settings.seed, opened.path)


def _baseline_options(name: str, settings: Settings, env_steps: int, given: Any) -> Any:
    """Return the options of a baseline with their budget: given ones, or the recipe's."""
    if name in ("maml", "rl2"):
        return replace(given or meta_learner(settings.family, name), env_steps=env_steps)  # type: ignore[arg-type]
    from epg.baselines.fixed_policy import SearchSettings

    return SearchSettings(env_steps, products="observation-products" in settings.loss.inputs)


def compare(
    loss: str | Path | LossArtefact,
    family: FamilyLike = None,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    others: Sequence[str | Path] = ("ppo",),
    ppo_steps: Sequence[int] = (PAPER_STEPS,),
    maml_steps: int | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
) -> LearningResult:
    """Compare a loss with other methods on the same held-out tasks.

    `others` are ppo (tuned, from the same initial policies), and policies of `train_baseline`: a run directory, or
    maml, rl2 or fixed for the newest one of this family below runs/. PPO gets as many environment steps as the loss,
    and then each number of `ppo_steps`; an update of MAML gets as many as the loss, or `maml_steps`.
    """
    for steps in ppo_steps:  # before minutes are spent on the loss
        require(steps > 0, f"PPO's steps must be above zero, not {steps}.")
    artefact, family = _open(loss, family, run)
    from epg.evaluation import protocol
    from epg.evaluation.trained_policies import policy_methods
    from epg.policies.trained import load_policy

    trained = [load_policy(_trained_run(str(it), family)) for it in others if it != "ppo"]

    own, stats = protocol.settings_of(artefact), protocol.obs_stats_of(artefact)
    own = replace(protocol.with_updates(own, updates), family=family)
    methods, configs = [protocol.loss_method(artefact, family, updates)], {}
    for steps in dict.fromkeys([own.lifetime.steps, *ppo_steps] if "ppo" in others else []):
        settings, tuned = _ppo(own, steps, stats is not None)
        ppo = protocol.policy_gradient_method(settings, "ppo", stats, tuned)
        if steps != own.lifetime.steps:
            ppo = replace(ppo, name=f"ppo-{steps}", label=f"PPO, {steps:,} steps")
        methods.append(ppo)
        configs[ppo.name] = to_dict(settings)
    for policy in trained:
        given = maml_steps if policy.manifest.get("baseline") == "maml" else None
        found = policy_methods(policy, own, own.lifetime.steps if given is None else given)
        methods += found
        configs |= {it.name: {"options": policy.manifest["options"]} for it in found}
    results = [protocol.record(it, tasks, seed, lifetimes=lifetimes) for it in methods]
    return _save(results, family, seed, run, {**_origin(artefact), "baselines": configs})


def _trained_run(named: str, family: str) -> Path:
    """Return a run directory as it is named, or the newest finished training of a baseline of this name."""
    if named not in ("fixed", "maml", "rl2"):
        return Path(named)
    found = []
    for config in RUNS.glob("*/config.json"):
        content = Run.open(config.parent).config if (config.parent / "policy.json").is_file() else {}
        if (content.get("kind"), content.get("family")) == (named, family):
            found.append(config)
    hint = f"epg baseline {named} {family} --env-steps N"
    require(bool(found), f"no run below {RUNS}/ has trained {named} for {family}: `{hint}` trains one.")
    return max(found, key=lambda it: it.stat().st_mtime).parent


def probe(
    loss: str | Path | LossArtefact,
    family: FamilyLike = None,
    *,
    tasks: int = 32,
    seed: int = 0,
    run: str | Path | None = None,
    on_probe: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Measure a loss card: what the loss is, under changes of history, interface, architecture and length."""
    artefact, family = _open(loss, family, run)
    from epg.evaluation.probe import Probe, card
    from epg.viz.card import draw_card

    results = []
    for result in Probe.of(artefact, family, tasks, seed).results():
        results.append(result)
        on_probe(f"{len(results)} probes done, the last: {result.name}")
    summary = {**card(results, family, seed), "loss": artefact.manifest["sha256"]}
    path = Path(run or new_run_path(f"probe-{family}"))
    Run.create(path, {**_about("probe", family), **_origin(artefact)})
    write_json(path / "card.json", summary)
    draw_card(summary, path)
    return {"run": str(path), **summary}


def _ppo(settings: Settings, steps: int | None, has_stats: bool) -> tuple[Settings, bool]:
    """Return PPO's settings for a family, and whether they were tuned for it."""
    recipe = recipe_of(settings.family)
    tuning = recipe.tuned_ppo(steps or settings.lifetime.steps)
    return ppo_settings(settings, tuning, steps, has_stats), bool(recipe.ppo)


def _open(loss: str | Path | LossArtefact, family: FamilyLike, run: str | Path | None) -> tuple[LossArtefact, str]:
    """Return a loss and the family it trains in; refuse before minutes are spent."""
    _check_run_path(run)
    artefact = loss if isinstance(loss, LossArtefact) else load_loss(loss)
    return artefact, _own_family(artefact) if family is None else name_of(family)


def _origin(loss: LossArtefact) -> dict[str, Any]:
    return {"loss": loss.manifest["sha256"], "settings": loss.manifest["settings"]}


def _about(kind: str, family: str) -> dict[str, Any]:
    return {"format": RUN_FORMAT, "kind": kind, "epg": __version__, "family": family}


def _own_family(loss: LossArtefact) -> str:
    """Return the family that a loss names. `module:attribute` would import code, which a manifest must not decide."""
    family: str = loss.manifest["family"]
    require(
        is_registered(family), f"the loss is for {family!r}: name it as --family to say that its code may run here."
    )
    return family


def _check_run_path(run: str | Path | None) -> None:
    """Refuse a place for results before minutes are spent on them."""
    if run is not None:
        check_vacant(Path(run))


def _save(
    results: list[MethodResult], family: str, seed: int, run: str | Path | None, config: dict[str, Any]
) -> LearningResult:
    """Make a run directory of recorded lifetimes."""
    kind = "learn" if len(results) == 1 else "compare"
    path = Path(run or new_run_path(f"{kind}-{family}"))
    Run.create(path, {**_about(kind, family), **config})
    return _write(results, family, seed, path)


def _write(results: list[MethodResult], family: str, seed: int, path: Path) -> LearningResult:
    """Write recorded lifetimes into a run directory, with their policies, figure and report."""
    from epg.evaluation.protocol import curves, table
    from epg.evaluation.result import LearningResult
    from epg.policies.trained import save_policies
    from epg.viz.report import write_report

    summary = table(results, family, seed)
    write_atomic(path / "curves.safetensors", encode_tensors(curves(results), {}))
    for method in results:
        save_policies(path / POLICIES / method.method, method.policies)
    write_json(path / "results.json", summary)
    write_report(path)
    return LearningResult(path, family, seed, {it.method: it for it in results}, summary)


def act(
    policy: str | Path | TrainedPolicy,
    env: str | None = None,
    *,
    task: int = 0,
    episodes: int = 5,
    seed: int = 0,
    sample: bool = False,
    video: str | Path | None = None,
) -> Episodes:
    """Play episodes with a policy in any Gymnasium environment that fits it; by default in its own family's.

    `task` chooses among the policies of a run; `video` names a GIF or MP4 of the first episode.
    """
    from epg.envs.play import play
    from epg.policies.trained import TrainedPolicy, load_policy

    loaded = policy if isinstance(policy, TrainedPolicy) else load_policy(policy, task)
    return play(loaded, env, episodes, seed, sample, video)


def check(family: FamilyLike) -> list[Check]:
    """Check a family, registered or `module:attribute`, against the contract."""
    from epg.evaluation.family_check import check_family
    from epg.families.registry import load

    return check_family(load(name_of(family)))


def report(run: str | Path) -> Path:
    """Draw a run's figures and its HTML report again, from what it saved; needs no JAX."""
    from epg.viz.report import write_report

    return write_report(Run.open(run).path)


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
) -> dict[str, Any]:
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
        family = _own_family(artefact)
    family = name_of(family)
    recording.find_mujoco_family(family)
    directory = Path(out or base / new_run_path(f"render-{family}").name)
    check_out(directory)
    if artefact is not None:
        filmed, source = protocol.loss_method(artefact, family, updates), artefact.manifest["sha256"]
    else:
        settings, _ = _ppo(protocol.with_updates(preset(family, "laptop"), updates), None, False)
        filmed, source = protocol.policy_gradient_method(settings, str(baseline)), None
    film = recording.record_film(filmed, seed, task, stages)
    title = f"{family}, held-out task {task}: trained by {'the ' if artefact else ''}{filmed.label}"
    about = {**_about("render", family), "task": task, "seed": seed}
    config = {**about, "loss": source, "settings": to_dict(filmed.settings)}
    return {"run": str(directory), **about, **write_film(film, title, directory, video, config)}


def watch(run: str | Path, port: int = 0) -> WatchServer:
    """Return the server of a live page about an evolution, on this machine only; call its `serve_forever`."""
    from epg.viz.watch import WatchServer

    return WatchServer(run, port)


def picture(family: FamilyLike, path: str | Path) -> Path:
    """Draw some tasks of a MuJoCo family side by side, into a PNG."""
    from epg.viz.film import write_picture

    return write_picture(name_of(family), Path(path))


def resumed_settings(run: Path, family: str) -> Settings:
    """Return the settings of a run to resume, refusing one of another family."""
    settings = from_dict(Settings, Run.open(run).config.get("settings"), f"{run / 'config.json'}: settings")
    require(family == settings.family, f"{run} is a run for {settings.family}, not for {family}.")
    return settings
