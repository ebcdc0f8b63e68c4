"""`train_baseline`: fixed policies, MAML or RL², trained on the tasks that evolution trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epg.api.common import LIFETIMES, FamilyLike, check_reachable, new_run_path, resumed_settings, write_results
from epg.core.errors import require
from epg.executors import check_executor
from epg.families.registry import name_of
from epg.recipes import meta_learner, preset
from epg.settings import Settings
from epg.storage.run import Run

if TYPE_CHECKING:
    from epg.baselines.fixed_ppo import FixedPPOSettings
    from epg.evaluation.result import LearningResult
    from epg.settings import MamlSettings, RL2Settings


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
    options: FixedPPOSettings | MamlSettings | RL2Settings | None = None,
    executor: str = "local",
    processes: int | None = None,
    on_step: Callable[[Any], None] | None = None,
) -> LearningResult:
    """Train a baseline on training tasks within a number of environment steps; score it on held-out ones.

    `fixed` is the best fixed linear policy by random search, `fixed-ppo` the best fixed MLP by PPO: what a user would
    deploy instead of a learning rule (domain randomization). `maml` is an initial policy for policy-gradient steps,
    `rl2` a recurrent policy. With `resume`, `run` continues with the budget and the seed it was begun with. `options`
    replace the default ones (of `maml` and `rl2`, the recipe's).
    """
    from epg.baselines import registry
    from epg.evaluation import protocol
    from epg.evaluation.batches import check_held_out
    from epg.evaluation.trained_policies import policy_methods

    check_executor(executor, processes)
    family = name_of(family)
    check_reachable(family, executor)
    check_held_out(tasks, seed, lifetimes)
    require(name in registry.BASELINES, f"unknown baseline {name!r}: choose one of {', '.join(registry.BASELINES)}.")
    if resume:
        require(run is not None, "resume needs run: the directory of the run to continue.")
        require(env_steps is None and seed == 0, f"{run} keeps its budget and its seed when resumed: drop them.")
        opened, settings = Run.open(str(run)), resumed_settings(Path(str(run)), family)
    else:
        require(env_steps is not None, "training a baseline needs env_steps: its budget.")
        settings = preset(family, "laptop", seed=seed)
        chosen = _baseline_options(name, settings, int(env_steps or 0), options)
        opened = registry.start(name, settings, chosen, Path(run or new_run_path(f"{name}-{family}")))
    with opened.lock():
        trained = registry.finish_locked(name, opened, on_step, executor, processes)
        methods = policy_methods(trained, settings)
        results = [protocol.record(it, tasks, settings.seed, lifetimes=lifetimes) for it in methods]
        return write_results(results, family, settings.seed, opened)


def _baseline_options(name: str, settings: Settings, env_steps: int, given: Any) -> Any:
    """Return the options of a baseline with their budget: given ones, or the default."""
    if name in ("maml", "rl2"):
        return replace(given or meta_learner(settings.family, name), env_steps=env_steps)  # type: ignore[arg-type]
    if name == "fixed-ppo":
        from epg.baselines.fixed_ppo import FixedPPOSettings

        return replace(given or FixedPPOSettings(), env_steps=env_steps)
    from epg.baselines.fixed_policy import SearchSettings

    return SearchSettings(env_steps, products="observation-products" in settings.loss.inputs)
