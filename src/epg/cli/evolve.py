"""`epg evolve`: every setting is an option; the family and the preset decide the defaults of all others."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from epg import api
from epg.cli.arguments import Family
from epg.cli.dry_run import print_plan
from epg.cli.output import print_json, print_seeds, say
from epg.cli.parsing import parse
from epg.cli.progress import evolve_with_bar, resumable, status_line
from epg.core.errors import require
from epg.settings import (
    EvolutionSettings,
    EvolveInit,
    GuidanceSettings,
    LifetimeSettings,
    LossSettings,
    PolicySettings,
    PPOSettings,
    Settings,
)


@dataclass(frozen=True)
class Evolve:
    """Evolve a loss for a family of tasks (Algorithm 1), or initial policies, or both."""

    family: Positional[Family]
    """Name of a family (see `epg tasks`) or module:attribute."""
    preset: api.PresetName = "laptop"
    """Which settings to start from; every other option overrides one of them."""
    config: Path | None = None
    """Settings from a run, or from a .json or .toml file; other options override them."""
    run: Path | None = None
    """Run directory; by default a new one below runs/."""
    resume: bool = False
    """Continue the run from its newest checkpoint."""
    start: str | None = None
    """Warm start instead of a fresh phi: a loss (run directory, file, zoo name) or a linear policy."""
    licence: str | None = None
    """Licence of the loss, for its manifest. By default none is stated: the loss is yours."""
    executor: Literal["inline", "local", "ray"] = "local"
    """Where lifetimes run: in this process (for debugging), in one process per core, or on a Ray cluster."""
    processes: int | None = None
    """Number of processes; by default one per core, of this machine or of the whole cluster."""
    address: str | None = None
    """The Ray cluster: HOST:PORT of its head, or `auto` on one of its nodes; by default a Ray of this run's own."""
    cpus: float = 1.0
    """CPUs of the Ray cluster that each single-threaded process takes: whole, or a fraction below one."""
    seeds: int = 1
    """Number of evolutions, with this seed and the following ones, in RUN/seed-N; drawn together at the end."""
    dry_run: bool = False
    """Print the settings as a config file and what they will cost, and stop."""
    json: bool = False
    """End with one line of JSON on standard output."""
    seed: int = 0
    """Seed from which every random number of the run is derived."""
    evolve_init: EvolveInit = "none"
    """Evolve the policy's initial parameters: beside the loss (epg: EPG+I), or alone for tuned PPO (ppo: PPO+I)."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    loss: LossSettings = field(default_factory=LossSettings)
    lifetime: LifetimeSettings = field(default_factory=LifetimeSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    ppo: PPOSettings = field(default_factory=PPOSettings)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)

    @property
    def settings(self) -> Settings:
        """Gather the settings among the arguments."""
        return Settings(**{it.name: getattr(self, it.name) for it in fields(Settings)})

    def main(self) -> None:
        """Evolve, with a bar; say where the loss is and how to use it."""
        require(not self.resume or self.run is not None, "--resume needs --run: the directory to continue.")
        require(self.seeds > 0, f"--seeds must be above zero, not {self.seeds}.")
        if self.dry_run:
            print_plan(self.settings, self.processes, self.seeds, self.json)
            return
        if self.seeds > 1:
            evolved = self._evolve_seeds(self.run or api.new_run_path(f"evolve-{self.family}"))
        else:
            evolved = [self._evolve(self.run, self.seed, self.resume)]
        if self.json:
            names = ("run", "epoch", "env_steps", "loss_sha256")
            each = [{name: getattr(it, name) for name in names} | {"run": str(it.run)} for it in evolved]
            print_json(each if self.seeds > 1 else each[0])

    def _evolve_seeds(self, place: Path) -> list[Any]:
        """Evolve one seed after the other; draw their fitness together."""
        numbers = range(self.seed, self.seed + self.seeds)
        runs = {number: place / f"seed-{number}" for number in numbers}
        for path in runs.values():
            if not (self.resume and os.path.exists(path)):
                api.check_vacant(path)
        evolved = [self._evolve(path, number, self.resume and os.path.exists(path)) for number, path in runs.items()]
        with status_line("drawing the report of all seeds"):
            report = api.report(place)
        if not self.json:
            print_seeds(api.summarise_seeds(place))
            say(f"report    {report}")
        return evolved

    def _evolve(self, place: Path | None, seed: int, resume: bool) -> Any:
        cluster, settings = api.Cluster(self.address, self.cpus), replace(self.settings, seed=seed)
        begun = place, resume, self.executor, self.processes, cluster, self.start, self.licence
        run, settings = api.prepare(settings, *begun)
        with resumable(self._again(run.path)):
            evolved = evolve_with_bar(run, settings, self.executor, self.processes, cluster)
        with status_line("drawing the report"):
            report = api.report(run.path)
        named = f" --family {self.family}" if ":" in self.family else ""  # own code must be named, see api.compare
        say(f"loss      {run.path}\nreport    {report}\nuse it    epg compare {run.path}{named}", stderr=self.json)
        return evolved

    def _again(self, run: Path) -> list[str]:
        """Return the command that continues after an interruption."""
        several = self.seeds > 1
        again = ["epg", "evolve", self.family, "--run", str(run.parent if several else run), "--resume"]
        again += ["--seeds", str(self.seeds), "--seed", str(self.seed)] if several else []
        again += ["--executor", self.executor] if self.executor != "local" else []
        again += ["--processes", str(self.processes)] if self.processes is not None else []
        again += ["--address", self.address] if self.address is not None else []
        return again + (["--cpus", f"{self.cpus:g}"] if self.cpus != 1 else [])


def parse_evolve(arguments: Sequence[str]) -> Any:
    """Parse `epg evolve FAMILY ...`; the defaults are those of the family's preset, or of the run to resume."""
    default = evolve_defaults(arguments)
    if default is None:
        return parse(Evolve, arguments, "epg evolve")
    # A positional argument with a default is not in tyro's usage line.
    return parse(Evolve, arguments, "epg evolve FAMILY", default=default)


def evolve_defaults(arguments: Sequence[str]) -> Evolve | None:
    """Return what `evolve` starts from: a preset of the family, a config, or the run to resume; None if unknown."""
    named = arguments[0] if arguments and not arguments[0].startswith("-") else None
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # reads what decides the other defaults
    first.add_argument("--preset", nargs="?", default="laptop", const="")
    first.add_argument("--evolve-init", "--evolve_init", nargs="?")
    first.add_argument("--config", nargs="?", type=Path)
    first.add_argument("--run", nargs="?", type=Path)
    first.add_argument("--resume", action="store_true")
    given, _ = first.parse_known_args(arguments)
    if named is None and given.config is None:
        wants_help = not arguments or any(it in ("-h", "--help") for it in arguments)
        require(wants_help, "evolve needs the family before its options: epg evolve FAMILY [OPTIONS].")
        return None
    if given.resume and given.run is not None and named is not None:
        begun = next(
            iter(sorted(given.run.glob("seed-*")) if os.path.isdir(given.run) else ()), given.run
        )  # all seeds have the same settings
        settings = api.resumed_settings(begun, named)
    elif given.config is not None:
        settings = api.load_settings(given.config, named, given.preset)
        require(named is not None or ":" not in settings.family, f"{given.config} names code: name {settings.family}.")
    else:
        settings = api.settings_for(str(named), given.preset, 0, "ppo" if given.evolve_init == "ppo" else "none")
    values = {it.name: getattr(settings, it.name) for it in fields(Settings)}
    return Evolve(preset=given.preset, config=given.config, run=given.run, **values)
