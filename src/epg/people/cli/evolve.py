"""`epg evolve`: every setting is an option, and the family and preset decide the defaults of all others."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from epg.parts.executors.base import Cluster
from epg.people import api
from epg.people.cli.output import STOPPED, print_json
from epg.people.presets import PresetName
from epg.people.progress import console, evolve_with_bar, waiting
from epg.words.settings import (
    EvolutionSettings,
    GuidanceSettings,
    LifetimeSettings,
    LossSettings,
    PolicyGradientSettings,
    PolicySettings,
    SearchSettings,
    Settings,
    from_dict,
    require,
)

Family = Annotated[str, arg(metavar="FAMILY")]


@dataclass(frozen=True)
class Evolve:
    """Evolve a loss for a family of tasks (Algorithm 1)."""

    family: Positional[Family]
    """Name of a family (see `epg tasks`) or module:attribute."""
    preset: PresetName = "laptop"
    """Which settings to start from; every other option overrides one of them."""
    run: Path | None = None
    """Directory of the run; by default a new one below runs/."""
    resume: bool = False
    """Go on with the run from its newest checkpoint."""
    start: str | None = None
    """Loss to begin with instead of a random one: run directory, loss file, or name of a shipped loss."""
    executor: Literal["inline", "local", "ray"] = "local"
    """Where lifetimes run: in this process (for debugging), in one process per core, or on a Ray cluster."""
    processes: int | None = None
    """How many processes; by default one per core, of this machine or of the whole cluster."""
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
    ppo: PolicyGradientSettings = field(default_factory=PolicyGradientSettings)
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)
    search: SearchSettings = field(default_factory=SearchSettings)

    @property
    def settings(self) -> Settings:
        """Gather the settings among the arguments."""
        return Settings(
            self.family,
            self.seed,
            self.policy,
            self.loss,
            self.lifetime,
            self.guidance,
            self.ppo,
            self.evolution,
            self.search,
        )

    def main(self) -> None:
        """Evolve, with a bar; say where the loss is and how to use it."""
        require(not self.resume or self.run is not None, "--resume needs --run: the directory to go on with.")
        cluster = Cluster(self.address, self.cpus)
        run, settings = api.prepare(
            self.settings, self.run, self.resume, self.executor, self.processes, cluster, self.start
        )
        try:
            evolved = evolve_with_bar(run, settings, self.executor, self.processes, cluster)
        except KeyboardInterrupt:
            again = ["epg", "evolve", self.family, "--run", str(run.path), "--resume"]
            again += ["--executor", self.executor] if self.executor != "local" else []
            again += ["--processes", str(self.processes)] if self.processes is not None else []
            again += ["--address", self.address] if self.address is not None else []
            again += ["--cpus", f"{self.cpus:g}"] if self.cpus != 1 else []
            console().print(
                f"\nepg: stopped; every finished epoch and search step is saved. Go on with: {shlex.join(again)}",
                markup=False,
                soft_wrap=True,
            )
            sys.exit(STOPPED)
        with waiting("drawing the report"):
            report = api.report(run.path)
        console().print(
            f"loss      {run.path}\nreport    {report}\nuse it    epg compare {self.family} --loss {run.path}",
            markup=False,
            soft_wrap=True,
        )
        if self.json:
            print_json(
                {
                    "run": str(evolved.run),
                    "epoch": evolved.epoch,
                    "env_steps": evolved.env_steps,
                    "loss_sha256": evolved.loss_sha256,
                }
            )


def evolve_defaults(arguments: Sequence[str]) -> Evolve | None:
    """Return what `evolve` starts from: the named preset of the named family, or the run to resume."""
    scout = _Scout.read(arguments)
    if scout is None:
        return None
    if scout.resume and scout.run is not None:
        from epg.parts.store import Run

        config = Run.open(scout.run).config
        settings = from_dict(Settings, config.get("settings"), f"{scout.run / 'config.json'}: settings")
        require(
            scout.family == settings.family,
            f"{scout.run} evolves a loss for {settings.family}, not for {scout.family}.",
        )
    else:
        settings = api.settings_for(scout.family, scout.preset, 0)
    parts = {name: getattr(settings, name) for name in _SECTIONS}
    return Evolve(family=scout.family, preset=scout.preset, run=scout.run, seed=settings.seed, **parts)


_SECTIONS = ("policy", "loss", "lifetime", "guidance", "ppo", "evolution", "search")


@dataclass(frozen=True)
class _Scout:
    """The few arguments of `evolve` that decide the defaults of all others."""

    family: str
    preset: Any = "laptop"
    run: Path | None = None
    resume: bool = False

    @classmethod
    def read(cls, arguments: Sequence[str]) -> _Scout | None:
        if not arguments or "-h" in arguments or "--help" in arguments:
            return None
        family = arguments[0]
        require(not family.startswith("-"), "evolve needs the family before its options: epg evolve FAMILY [OPTIONS].")
        words = [part for it in arguments for part in (it.split("=", 1) if it.startswith("--") else [it])]
        scout = cls(family)
        for name, value in zip(words, [*words[1:], ""], strict=True):
            if name == "--preset":
                scout = replace(scout, preset=value)
            elif name == "--run":
                scout = replace(scout, run=Path(value))
        return replace(scout, resume="--resume" in words)
