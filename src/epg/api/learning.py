"""`learn`, `baseline`, `compare` and `act`: policies trained on held-out tasks, and played."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from epg.core.errors import BadInput, did_you_mean, require, require_count
from epg.evaluation.transfer import Transfer, with_updates
from epg.families.registry import name_of
from epg.recipes import preset
from epg.settings import to_dict
from epg.storage.loss_artefact import LossArtefact
from epg.storage.policy_artefact import POLICIES, POLICY
from epg.storage.run import Run
from epg.zoo import is_loss, load_loss

if TYPE_CHECKING:
    from epg.envs.play import Episodes
    from epg.evaluation.protocol import Method
    from epg.evaluation.result import LearningResult
    from epg.evaluation.updates import OnUpdate
    from epg.policies.trained import TrainedPolicy

BASELINES = "fixed", "fixed-ppo", "maml", "rl2"
"""Policies that are trained on training tasks first."""


def learn(
    loss: str | Path | LossArtefact,
    family: FamilyLike = None,
    *,
    tasks: int = 20,
    seed: int = 0,
    updates: int | None = None,
    stretch: bool = False,
    policy: Mapping[str, Any] | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
    on_update: OnUpdate | None = None,
) -> LearningResult:
    """Train fresh policies with a loss on held-out tasks (Algorithm 2), and save their curves.

    Another `family` with the same spaces, another `policy` ({"hidden": (256, 256), "activation": "relu"}) and another
    number of `updates` are transfer, and called so in the results. The step sizes of a longer lifetime are the evolved
    ones, then the last of them; with `stretch` they fall over the whole lifetime. Ten tasks are trained together; when
    they have ended, `on_update` is called with each of their updates.
    """
    transfer = Transfer(updates, stretch, policy or {})
    artefact, family = open_loss(loss, family, run)
    from epg.evaluation.protocol import loss_method

    held_out = HeldOut(tasks, seed, lifetimes)
    return record_methods([loss_method(artefact, family, transfer)], held_out, run, origin(artefact), on_update)


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
    settings, tuned = ppo_for(with_updates(preset(family, "laptop"), updates), None, False)
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
    stretch: bool = False,
    policy: Mapping[str, Any] | None = None,
    others: Sequence[str | Path] = ("ppo",),
    ppo_steps: Sequence[int] = (PAPER_STEPS,),
    maml_steps: int | None = None,
    lifetimes: int = LIFETIMES,
    run: str | Path | None = None,
    on_update: OnUpdate | None = None,
) -> LearningResult:
    """Compare a loss with other methods on the same held-out tasks.

    `others` are ppo (tuned, from the same initial policies); other losses and evolved initial policies (a run
    directory, or the name of a loss); and policies of `train_baseline`: a run directory, or maml, rl2, fixed or
    fixed-ppo for the newest one of this family below runs/. PPO gets as many environment steps as the loss, and then
    each number of `ppo_steps`; an update of MAML gets as many as the loss, or `maml_steps`. `policy`, `updates` and
    `stretch` are those of `learn`.
    """
    transfer = Transfer(updates, stretch, policy or {})
    require(not isinstance(others, str), f"others is a list of methods: others=[{others!r}].")
    for steps in ppo_steps:  # before minutes are spent on the loss
        require_count("PPO's steps", steps)
    if maml_steps is not None:
        require_count("the steps of an update of MAML", maml_steps)
        require(any(it != "ppo" for it in others), "maml_steps needs maml among the others: --with ppo maml.")
    artefact, family = open_loss(loss, family, run)
    from epg.evaluation import protocol

    first = protocol.loss_method(artefact, family, transfer)
    methods, configs = [first], {}
    for steps in dict.fromkeys([first.settings.lifetime.steps, *ppo_steps] if "ppo" in others else []):
        methods.append(_ppo(first, steps))
        configs[methods[-1].name] = to_dict(methods[-1].settings)
    for named in (str(it) for it in others if it != "ppo"):
        for method, config in _other(named, first, transfer, maml_steps):
            methods.append(_told_apart(method, named, methods))
            configs[methods[-1].name] = config
    about = {**origin(artefact), "baselines": configs}
    return record_methods(methods, HeldOut(tasks, seed, lifetimes), run, about, on_update)


def _ppo(loss: Method, steps: int) -> Method:
    """Return tuned PPO with the policies of a loss, for so many steps."""
    from epg.evaluation.protocol import policy_gradient_method

    settings, tuned = ppo_for(loss.settings, steps, loss.obs_stats is not None)
    ppo = policy_gradient_method(settings, "ppo", loss.obs_stats, tuned)
    same = steps == loss.settings.lifetime.steps
    return ppo if same else replace(ppo, name=f"ppo-{steps}", label=f"PPO, {steps:,} steps")


def _other(
    named: str, first: Method, transfer: Transfer, maml_steps: int | None
) -> list[tuple[Method, dict[str, Any]]]:
    """Return the methods of another loss or of a trained baseline, each with what config.json says about it."""
    from epg.evaluation.protocol import loss_method
    from epg.evaluation.trained_policies import policy_methods
    from epg.policies.trained import load_policy

    family, steps = first.settings.family, first.settings.lifetime.steps
    if is_loss(named):
        loss = load_loss(named)
        return [(loss_method(loss, family, transfer), origin(loss))]
    known = named in BASELINES or os.path.exists(named)
    words = "ppo, maml, rl2, fixed, fixed-ppo, a loss, or the run directory of one of these"
    require(known, f"unknown method {named!r}{did_you_mean(named, ('ppo', *BASELINES))}: compare with {words}.")
    trained = load_policy(_trained_run(named, family))
    if maml_steps is not None and trained.manifest.get("baseline") == "maml":
        steps = maml_steps
    return [(it, {"options": trained.manifest["options"]}) for it in policy_methods(trained, first.settings, steps)]


def _told_apart(method: Method, named: str, others: Sequence[Method]) -> Method:
    """Return a method under a name and a label that no other has."""
    names, number = {it.name for it in others}, 2
    name = method.name
    while name in names:
        name, number = f"{method.name}-{number}", number + 1
    taken, short = method.label in {it.label for it in others}, "/".join(Path(named).parts[-2:])
    return replace(method, name=name, label=f"{method.label}, {short}" if taken else method.label)


def _trained_run(named: str, family: str) -> Path:
    """Return a run directory as it is named, or the newest finished training of a baseline of this name."""
    if named not in BASELINES:
        return Path(named)
    found = []
    for config in RUNS.glob("*/config.json"):
        if not (config.parent / POLICY.manifest).is_file():
            continue
        try:
            content = Run.open(config.parent).config
        except BadInput:
            continue  # a damaged neighbour is none of this family's business
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

    if not isinstance(policy, TrainedPolicy):
        trains = is_loss(policy) and not any(os.path.exists(Path(policy) / it) for it in (POLICY.manifest, POLICIES))
        require(not trains, f"{policy} is a loss, not a policy: `epg learn {policy}` trains some; then name its run.")
        policy = load_policy(policy, task)
    return play(policy, env, episodes, seed, sample, video)
