"""`epg evolve`: every setting is an option; the family and the preset decide the defaults of all others."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

import tyro
from tyro.conf import Positional

from epg import api
from epg.cli.arguments import Family
from epg.cli.output import print_json
from epg.cli.progress import console, evolve_with_bar, resumable, status_line
from epg.core.errors import require
from epg.settings import (
    EvolutionSettings,
    GuidanceSettings,
    LifetimeSettings,
    LossSettings,
    PolicySettings,
    PPOSettings,
    Settings,
)


@dataclass(frozen=True)
class Evolve:
    """Evolve a loss for a family of tasks (Algorithm 1)."""

    family: Positional[Family]
    """Name of a family (see `epg tasks`) or module:attribute."""
    preset: api.PresetName = "laptop"
    """Which settings to start from; every other option overrides one of them."""
    run: Path | None = None
    """Run directory; by default a new one below runs/."""
    resume: bool = False
    """Continue the run from its newest checkpoint."""
    start: str | None = None
    """Warm start instead of a fresh phi: a loss (run directory, file, zoo name) or a linear policy."""
    executor: Literal["inline", "local", "ray"] = "local"
    """Where lifetimes run: in this process (for debugging), in one process per core, or on a Ray cluster."""
    processes: int | None = None
    """Number of processes; by default one per core, of this machine or of the whole cluster."""
    address: str | None = None
    """The Ray cluster: HOST:PORT of its head, or `auto` on one of its nodes; by default a Ray of this run's own."""
    cpus: float = 1.0
    """CPUs of the Ray cluster that each single-threaded process takes: whole, or a fraction below one."""
    json: bool = False
    """End with one line of JSON on standard output."""
    seed: int = 0
    """Seed from which every random number of the run is derived."""
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
        cluster = api.Cluster(self.address, self.cpus)
        run, settings = api.prepare(
            self.settings, self.run, self.resume, self.executor, self.processes, cluster, self.start
        )
        again = ["epg", "evolve", self.family, "--run", str(run.path), "--resume"]
        again += ["--executor", self.executor] if self.executor != "local" else []
        again += ["--processes", str(self.processes)] if self.processes is not None else []
        again += ["--address", self.address] if self.address is not None else []
        again += ["--cpus", f"{self.cpus:g}"] if self.cpus != 1 else []
        with resumable(again):
            evolved = evolve_with_bar(run, settings, self.executor, self.processes, cluster)
        with status_line("drawing the report"):
            report = api.report(run.path)
        named = f" --family {self.family}" if ":" in self.family else ""  # own code must be named, see api.compare
        console().print(
            f"loss      {run.path}\nreport    {report}\nuse it    epg compare {run.path}{named}",
            markup=False,
            soft_wrap=True,
        )
        if self.json:
            names = ("run", "epoch", "env_steps", "loss_sha256")
            print_json({name: getattr(evolved, name) for name in names} | {"run": str(evolved.run)})


def parse_evolve(arguments: Sequence[str]) -> Evolve:
    """Parse `epg evolve FAMILY ...`; the defaults are those of the family's preset, or of the run to resume."""
    default = evolve_defaults(arguments)
    if default is None:
        return tyro.cli(Evolve, args=arguments, prog="epg evolve")
    # A positional argument with a default is not in tyro's usage line.
    return tyro.cli(Evolve, args=arguments, prog="epg evolve FAMILY", default=default)


def evolve_defaults(arguments: Sequence[str]) -> Evolve | None:
    """Return what `evolve` starts from: the preset of the family, or the run to resume; None without a family."""
    wants_help = any(it in ("-h", "--help") for it in arguments)
    if not arguments or (wants_help and arguments[0].startswith("-")):
        return None
    family = arguments[0]
    require(not family.startswith("-"), "evolve needs the family before its options: epg evolve FAMILY [OPTIONS].")
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # reads what decides the other defaults
    first.add_argument("--preset", nargs="?", default="laptop", const="")
    first.add_argument("--run", nargs="?", type=Path)
    first.add_argument("--resume", action="store_true")
    given, _ = first.parse_known_args(arguments[1:])
    if given.resume and given.run is not None:
        settings = api.resumed_settings(given.run, family)
    else:
        settings = api.settings_for(family, given.preset, 0)
    values = {it.name: getattr(settings, it.name) for it in fields(Settings)} | {"family": family}
    return Evolve(preset=given.preset, run=given.run, **values)
