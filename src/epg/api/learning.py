"""`learn`, `baseline`, `compare` and `act`: policies trained on held-out tasks, and played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from epg.api.common import (
    LIFETIMES,
    PAPER_STEPS,
    RUNS,
    FamilyLike,
    HeldOut,
    check_run_path,
    open_loss,
    origin,
    ppo_for,
    record_methods,
)
from epg.core.errors import require
from epg.families.registry import name_of
from epg.recipes import preset
from epg.settings import to_dict
from epg.storage.loss_artefact import LossArtefact
from epg.storage.run import Run

if TYPE_CHECKING:
    from epg.envs.play import Episodes
    from epg.evaluation.result import LearningResult
    from epg.evaluation.updates import OnUpdate
    from epg.policies.trained import TrainedPolicy


def learn(
    loss: str | Path | LossArtefact,
    family: FamilyLike = None,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
    on_update: OnUpdate | None = None,
) -> LearningResult:
    """Train fresh policies with a loss on held-out tasks (Algorithm 2), and save their curves.

    Ten tasks are trained together; when they have ended, `on_update` is called with each of their updates.
    """
    artefact, family = open_loss(loss, family, run)
    from epg.evaluation.protocol import loss_method

    held_out = HeldOut(tasks, seed, lifetimes)
    return record_methods([loss_method(artefact, family, updates)], held_out, run, origin(artefact), on_update)


def baseline(
    name: str,
    family: FamilyLike,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
    on_update: OnUpdate | None = None,
) -> LearningResult:
    """Train fresh policies with PPO or REINFORCE, in PPO's tuned settings, on held-out tasks."""
    from epg.evaluation import protocol

    check_run_path(run)
    family = name_of(family)
    settings, tuned = ppo_for(protocol.with_updates(preset(family, "laptop"), updates), None, False)
    method = protocol.policy_gradient_method(settings, name, None, tuned and name == "ppo")
    held_out, config = HeldOut(tasks, seed, lifetimes), {"settings": to_dict(settings)}
    return record_methods([method], held_out, run, config, on_update)


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
    on_update: OnUpdate | None = None,
) -> LearningResult:
    """Compare a loss with other methods on the same held-out tasks.

    `others` are ppo (tuned, from the same initial policies), and policies of `train_baseline`: a run directory, or
    maml, rl2 or fixed for the newest one of this family below runs/. PPO gets as many environment steps as the loss,
    and then each number of `ppo_steps`; an update of MAML gets as many as the loss, or `maml_steps`.
    """
    for steps in ppo_steps:  # before minutes are spent on the loss
        require(steps > 0, f"PPO's steps must be above zero, not {steps}.")
    artefact, family = open_loss(loss, family, run)
    from epg.evaluation import protocol
    from epg.evaluation.trained_policies import policy_methods
    from epg.policies.trained import load_policy

    trained = [load_policy(_trained_run(str(it), family)) for it in others if it != "ppo"]

    own, stats = protocol.settings_of(artefact), protocol.obs_stats_of(artefact)
    own = replace(protocol.with_updates(own, updates), family=family)
    methods, configs = [protocol.loss_method(artefact, family, updates)], {}
    for steps in dict.fromkeys([own.lifetime.steps, *ppo_steps] if "ppo" in others else []):
        settings, tuned = ppo_for(own, steps, stats is not None)
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
    config = {**origin(artefact), "baselines": configs}
    return record_methods(methods, HeldOut(tasks, seed, lifetimes), run, config, on_update)


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
