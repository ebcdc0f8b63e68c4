"""What experiments need trained: found in the zoo and among finished runs, or trained now, with resume."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from epg.baselines import registry
from epg.core.errors import BadInput, require
from epg.evolution.estimate import MUJOCO_RATE, estimate
from epg.evolution.loop import evolve_run
from epg.evolution.runs import create_run, open_run
from epg.experiments.base import Need, Scale
from epg.families.registry import find_family
from epg.policies.trained import TrainedPolicy, load_policy
from epg.recipes import meta_learner, preset
from epg.settings import Settings, from_dict
from epg.storage.loss_artefact import LOSS, LossArtefact
from epg.storage.run import Run
from epg.zoo import list_losses, load_loss, zoo_names

DAY = 24 * 3600.0
TINY: dict[str, dict[str, Any]] = {
    "maml": {"tasks": 2, "batch_steps": 128, "outer_epochs": 1},
    "rl2": {"lifetimes": 2, "lifetime_steps": 128, "units": 8, "bptt_steps": 64, "update_epochs": 1, "minibatches": 1},
}
"""Options of the baselines at smoke scale; one outer step."""

Say = Callable[[str], None]
Write = Callable[[str, int, Mapping[str, float]], None]
"""Keeps a point of a learning curve: its name, environment steps, values."""
T = TypeVar("T")


def nowhere(curve: str, env_steps: int, values: Mapping[str, float]) -> None:
    """Keep nothing."""


@dataclass(frozen=True)
class Lab:
    """Where an experiment takes place: its scale, and what was trained for it."""

    scale: Scale
    losses: dict[Need, LossArtefact]
    policies: dict[Need, TrainedPolicy]
    say: Say
    measured: dict[Any, Any] = field(default_factory=dict)
    """What was measured for figures before this one."""
    write: Write = nowhere
    """Keeps the learning curves of the figure's lifetimes."""

    def once(self, key: Any, measure: Callable[[], T]) -> T:
        """Return what was measured under this key, or measure it: figures share lifetimes."""
        if key not in self.measured:
            self.measured[key] = measure()
        found: T = self.measured[key]
        return found

    def loss(self, family: str, seed: int | None = None, **changes: Any) -> LossArtefact:
        """Return the evolved loss of a family."""
        return self.losses[Need("loss", family, seed, tuple(changes.items()))]

    def policy(self, name: Any, family: str) -> TrainedPolicy:
        """Return the policy of a baseline."""
        return self.policies[Need(name, family)]

    def origin(self) -> dict[str, Any]:
        """Describe what was trained: of each its digest, and the environment steps it cost."""
        trained: list[tuple[Need, dict[str, Any]]] = [(need, it.manifest) for need, it in self.losses.items()]
        trained += [(need, it.manifest) for need, it in self.policies.items()]
        return {
            need.label + (f" seed {need.seed}" if need.seed is not None else ""): {
                "sha256": manifest.get("sha256"),
                "env_steps": manifest["env_steps"],
            }
            for need, manifest in trained
        }


@dataclass(frozen=True)
class Trainer:
    """Finds or trains what is needed, below one directory that figures share."""

    scale: Scale
    root: Path
    """Where it trains: ROOT/FAMILY-SCALE-sSEED."""
    runs: Path
    """Where finished runs are looked for."""
    say: Say
    measured: dict[Any, Any] = field(default_factory=dict)
    """What figures measured so far."""

    def lab(
        self,
        needs: Iterable[Need],
        given: LossArtefact | None = None,
        write: Write = nowhere,
    ) -> Lab:
        """Return everything that is needed; `given` is a loss to use instead of another of its family."""
        wanted = tuple(dict.fromkeys(needs))
        losses = {it: self._given(it, given) or self._loss(it) for it in wanted if it.kind == "loss"}
        policies = {it: self._policy(it, losses) for it in wanted if it.kind != "loss"}
        return Lab(self.scale, losses, policies, self.say, self.measured, write)

    def seconds(self, needs: Iterable[Need], given: LossArtefact | None = None) -> dict[Need, float]:
        """Guess the time of what is still to be trained."""
        missing = [it for it in dict.fromkeys(needs) if not self._is_there(it, given)]
        return {it: self._seconds(it) for it in missing}

    def _seconds(self, need: Need) -> float:
        settings = self._settings(need)
        cost = estimate(settings, None)
        if need.kind == "loss":
            return cost.seconds
        return 0.0 if self.scale.smoke else (cost.training_steps + cost.scoring_steps) / MUJOCO_RATE

    def _is_there(self, need: Need, given: LossArtefact | None) -> bool:
        if need.kind != "loss":
            return self._found_policy(need) is not None
        return self._given(need, given) is not None or self._found(need) is not None

    def _settings(self, need: Need) -> Settings:
        return preset(need.family, self.scale.name, seed=need.seed or 0, **dict(need.changes))

    def _place(self, need: Need) -> Path:
        return self.root / f"{need.label}-{self.scale.name}-s{need.seed or 0}"

    @staticmethod
    def _given(need: Need, given: LossArtefact | None) -> LossArtefact | None:
        fits = given is not None and need.seed is None and not need.changes and given.manifest["family"] == need.family
        return given if fits else None

    def _found(self, need: Need) -> LossArtefact | None:
        """Return a finished loss: with any seed, that of the zoo or else one with the preset's settings.

        One that evolved for longer than the preset is finished, too.
        """
        shipped = need.family in zoo_names() and self.scale.name != "paper"
        if need.seed is None and not need.changes and shipped:
            return load_loss(need.family)
        wanted = self._settings(need)
        for it in list_losses(self.runs):
            seed, manifest = it.settings.seed if need.seed is None else need.seed, it.artefact.manifest
            fresh, done = manifest["warm_start"] is None, manifest["epochs"] >= wanted.evolution.epochs
            longer = replace(wanted.evolution, epochs=max(wanted.evolution.epochs, it.settings.evolution.epochs))
            if fresh and done and it.settings == replace(wanted, seed=seed, evolution=longer):
                return it.artefact
        place = self._place(need)
        return load_loss(place) if os.path.isfile(place / LOSS.manifest) and self._is_finished(place) else None

    @staticmethod
    def _is_finished(place: Path) -> bool:
        manifest = load_loss(place).manifest
        return bool(manifest["epochs"] >= from_dict(Settings, manifest["settings"]).evolution.epochs)

    def _loss(self, need: Need) -> LossArtefact:
        found = self._found(need)
        if found is not None:
            return found
        settings, place = self._settings(need), self._place(need)
        begun = os.path.isfile(place / "config.json")
        run, settings = open_run(place, need.family) if begun else (create_run(settings, place), settings)
        total = settings.evolution.epochs

        def on_epoch(it: Any) -> None:
            self.say(f"evolving {need.label}: epoch {it.epoch + 1} of {total}, fitness {it.fitness_mean:.4g}")

        self.say(f"evolving {need.label}: compiling")
        evolve_run(run, settings, "inline" if self.scale.smoke else "local", None, on_epoch)
        return load_loss(place)

    def _found_policy(self, need: Need) -> TrainedPolicy | None:
        """Return a trained policy: of these figures, or the newest of another run."""
        runs = [] if self.scale.smoke else self.runs.glob("**/policy.json")
        places = sorted((it.parent for it in runs), key=lambda it: it.stat().st_mtime, reverse=True)
        for place in (self._place(need), *places):
            if not all(os.path.isfile(place / name) for name in ("policy.json", "config.json")):
                continue  # a policy that a loss trained has no run of its own
            with contextlib.suppress(BadInput):  # a damaged one is left out, as `epg losses` does
                config = Run.open(place).config
                if (config.get("kind"), config.get("family")) == (need.kind, need.family):
                    return load_policy(place)
        return None

    def _policy(self, need: Need, losses: dict[Need, LossArtefact]) -> TrainedPolicy:
        """Return a baseline's policy, trained with as many environment steps as the loss of its family."""
        found, place, settings = self._found_policy(need), self._place(need), self._settings(need)
        if found is not None:
            return found
        loss = next((it for one, it in losses.items() if one.family == need.family), None)
        require(loss is not None, f"{need.kind} of {need.family} needs a loss of it, for its budget.")
        assert loss is not None
        options = replace(meta_learner(need.family, need.kind), env_steps=loss.manifest["env_steps"])  # type: ignore[arg-type]
        if self.scale.smoke:
            options = replace(options, env_steps=1, **TINY[need.kind])
        if not os.path.isfile(place / "config.json"):
            registry.start(need.kind, settings, options, place)

        def on_step(it: Any) -> None:
            self.say(f"training {need.kind} for {need.family}: step {it.epoch}, mean return {it.fitness_mean:.4g}")

        return registry.finish(need.kind, Run.open(place), on_step, "local", None)


def check_given(needs: Iterable[Need], given: LossArtefact | None, name: str) -> None:
    """Refuse a loss that a figure has no use for."""
    families = dict.fromkeys(it.family for it in needs if it.kind == "loss" and it.seed is None and not it.changes)
    if given is None:
        return
    made_for = given.manifest["family"]
    require(bool(families), f"figure {name} needs no single loss: drop --loss.")
    require(
        made_for in families, f"figure {name} needs a loss of {' or '.join(families)}, and this one is of {made_for}."
    )
    find_family(made_for)
