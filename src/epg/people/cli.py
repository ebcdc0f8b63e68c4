"""The command line. A verb is a dataclass of its arguments with a `run`; wrong input ends in one sentence and 2.

Nothing here imports JAX: `epg --help` answers at once.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, arg

from epg.parts.executors.base import ExecutorFailed
from epg.parts.families import REGISTRY
from epg.parts.files import plain
from epg.people import api
from epg.people.presets import PresetName
from epg.people.progress import console, evolve_with_bar, waiting
from epg.people.table import show_table
from epg.words.errors import BadInput
from epg.words.settings import (
    EvolutionSettings,
    GuidanceSettings,
    LifetimeSettings,
    LossSettings,
    PolicyGradientSettings,
    PolicySettings,
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
    executor: Literal["inline", "local"] = "local"
    """Where lifetimes run: in this process (for debugging), or in one process per core."""
    processes: int | None = None
    """How many processes; by default one per core."""
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
        )

    def main(self) -> None:
        """Evolve, with a bar; say where the loss is and how to use it."""
        require(not self.resume or self.run is not None, "--resume needs --run: the directory to go on with.")
        run, settings = api.prepare(self.settings, self.run, self.resume, self.executor, self.processes)
        try:
            evolved = evolve_with_bar(run, settings, self.executor, self.processes)
        except KeyboardInterrupt:
            console().print(
                f"\nepg: stopped; every finished epoch is saved. Go on with: "
                f"epg evolve {shlex.quote(self.family)} --run {shlex.quote(str(run.path))} --resume",
                markup=False,
                soft_wrap=True,
            )
            sys.exit(130)
        with waiting("drawing the report"):
            report = api.report(run.path)
        console().print(
            f"loss      {run.path}\nreport    {report}\nuse it    epg compare {self.family} --loss {run.path}",
            markup=False,
            soft_wrap=True,
        )
        if self.json:
            _print_json(
                {
                    "run": str(evolved.run),
                    "epoch": evolved.epoch,
                    "env_steps": evolved.env_steps,
                    "loss_sha256": evolved.loss_sha256,
                }
            )


@dataclass(frozen=True)
class Learn:
    """Train fresh policies with a loss on held-out tasks (Algorithm 2)."""

    loss: str
    """Run directory, loss file, or name of a shipped loss."""
    family: str | None = None
    """Family to learn in; by default the one the loss was evolved for."""
    tasks: int = 20
    """How many held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    updates: int | None = None
    """Length of a lifetime in updates; by default that of the evolution."""
    run: Path | None = None
    """Directory for curves, figure and report; by default a new one below runs/."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """Learn and show the table."""
        with waiting(f"learning on {self.tasks} held-out tasks"):
            result = api.learn(
                self.loss,
                self.family,
                tasks=self.tasks,
                seed=self.seed,
                updates=self.updates,
                run=self.run,
            )
        _show(result, self.json)


@dataclass(frozen=True)
class Baseline:
    """Train fresh policies with a hand-made learner on held-out tasks."""

    name: Positional[Literal["ppo", "reinforce"]]
    """Which learner."""
    family: Positional[Family]
    """Name of a family or module:attribute."""
    tasks: int = 20
    """How many held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    updates: int | None = None
    """Length of a lifetime, in updates of the family's laptop preset."""
    run: Path | None = None
    """Directory for curves, figure and report; by default a new one below runs/."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """Learn and show the table."""
        with waiting(f"{self.name} on {self.tasks} held-out tasks"):
            result = api.baseline(
                self.name, self.family, tasks=self.tasks, seed=self.seed, updates=self.updates, run=self.run
            )
        _show(result, self.json)


@dataclass(frozen=True)
class Compare:
    """Set a loss against tuned PPO on the same held-out tasks."""

    family: Positional[Family]
    """The family the loss was evolved for."""
    loss: str
    """Run directory, loss file, or name of a shipped loss."""
    tasks: int = 20
    """How many held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    updates: int | None = None
    """Length of a lifetime in updates of the loss; by default that of the evolution."""
    run: Path | None = None
    """Directory for curves, figure and report; by default a new one below runs/."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """Compare and show the table."""
        with waiting(f"the loss and PPO on {self.tasks} held-out tasks"):
            result = api.compare(
                self.family,
                self.loss,
                tasks=self.tasks,
                seed=self.seed,
                updates=self.updates,
                run=self.run,
            )
        _show(result, self.json)


@dataclass(frozen=True)
class Tasks:
    """List the families, or show one family's specification."""

    family: Positional[Family | None] = None
    """Name of a family or module:attribute; without it all are listed."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """List or show."""
        from epg.methods.shards import find_family

        families = [find_family(name) for name in ([self.family] if self.family else REGISTRY)]
        if self.family:
            print(families[0].specification.rstrip() or families[0].summary)
        else:
            listing = Table("family", "observation", "action", "horizon", "what it asks for")
            for it in families:
                kind = f"{it.spaces.action} choices" if it.spaces.discrete else str(it.spaces.action)
                listing.add_row(it.name, str(it.spaces.observation), kind, str(it.horizon), it.summary)
            console().print(listing)
        if self.json:
            _print_json([{"name": it.name, "version": it.version, "horizon": it.horizon} for it in families])


@dataclass(frozen=True)
class Losses:
    """List the losses that can be used: shipped ones and those of your runs."""

    runs: Path = api.RUNS
    """Where to look for runs."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """List."""
        from epg.people.losses import list_losses

        found = list(list_losses(self.runs))
        listing = Table("loss", "family", "sees reward", "epochs", "env steps", "last fitness", "licence")
        for it in found:
            manifest = it.artefact.manifest
            curve = [value for value in manifest["curve"] if value is not None] or [float("nan")]
            listing.add_row(
                it.name,
                manifest["family"],
                "yes" if it.settings.loss.reward else "no",
                str(manifest["epochs"]),
                f"{manifest['env_steps']:,}",
                f"{sum(curve[-10:]) / len(curve[-10:]):.1f}",
                manifest["licence"],
            )
        console().print(listing if found else f"no losses yet: evolve one with `epg evolve {next(iter(REGISTRY))}`")
        if self.json:
            keys = ("family", "epochs", "env_steps", "sha256")
            _print_json([{"name": it.name} | {k: it.artefact.manifest[k] for k in keys} for it in found])


@dataclass(frozen=True)
class Report:
    """Draw a run's figures and its HTML report anew, from what it saved."""

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Directory of a run."""

    def main(self) -> None:
        """Draw."""
        print(api.report(self.run))


@dataclass(frozen=True)
class Check:
    """Check a family against the contract, registered or your own."""

    family: Positional[Family]
    """Name of a family or module:attribute."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """Ask every question; exit with 1 if the family fails one."""
        with waiting(f"checking {self.family}"):
            checks = api.check(self.family)
        for it in checks:
            mark = "[green]ok  " if it.passed else "[red]FAIL"
            problem = f": {escape(it.problem)}" if it.problem else ""
            console().print(f"{mark}[/] {it.name}{problem}", soft_wrap=True)
        if self.json:
            _print_json([{"name": it.name, "passed": it.passed, "problem": it.problem} for it in checks])
        if not all(it.passed for it in checks):
            sys.exit(1)


@dataclass(frozen=True)
class Bench:
    """Measure the environment steps per second of whole lifetimes on one core."""

    family: Positional[Family] = "point-goal"
    """Name of a family or module:attribute."""
    repeats: int = 5
    """Timed runs; the median is reported."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """Measure with the paper's network sizes."""
        from epg.people.bench import bench

        with waiting(f"timing lifetimes of {self.family}"):
            result = bench(self.family, self.repeats)
        listing = Table("lifetime of", "steps/s, one core", "min", "max")
        for name, rate in result["rates"].items():
            listing.add_row(name, *(f"{rate[key]:,.0f}" for key in ("median", "min", "max")))
        console().print(listing)
        console().print(result["setting"])
        if self.json:
            _print_json(result)


@dataclass(frozen=True)
class Demo:
    """Evolve two losses in minutes and set them against PPO on tasks they never saw."""

    run: Path | None = None
    """Directory for both runs; by default a new one below runs/."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """Run the demonstration."""
        from epg.people.demo import demo

        results = demo(self.run or api.new_run_path("demo"))
        if self.json:
            _print_json(results)


VERBS: dict[str, type] = {
    "demo": Demo,
    "tasks": Tasks,
    "evolve": Evolve,
    "learn": Learn,
    "baseline": Baseline,
    "compare": Compare,
    "losses": Losses,
    "report": Report,
    "check": Check,
    "bench": Bench,
}


def _print_json(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def _show(result: dict[str, Any], as_json: bool) -> None:
    show_table(result, Path(result["run"]) / "report.html")
    if as_json:
        _print_json(result)


def _evolve_defaults(arguments: Sequence[str]) -> Evolve | None:
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


_SECTIONS = ("policy", "loss", "lifetime", "guidance", "ppo", "evolution")


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


def _parse(arguments: Sequence[str]) -> Any:
    if not arguments or arguments[0] not in VERBS:
        _help(arguments)
    verb, rest = arguments[0], arguments[1:]
    default = _evolve_defaults(rest) if verb == "evolve" else None
    if default is None:
        return tyro.cli(VERBS[verb], args=rest, prog=f"epg {verb}")
    return tyro.cli(Evolve, args=rest, prog=f"epg {verb}", default=default)


def _help(arguments: Sequence[str]) -> None:
    wanted = not arguments or arguments[0] in ("-h", "--help")
    if arguments and arguments[0] == "--version":
        from epg import __version__

        print(f"epg {__version__}")
        sys.exit(0)
    require(wanted, f"unknown command {arguments[0]!r}: choose one of {', '.join(VERBS)}." if arguments else "")
    print("usage: epg COMMAND [OPTIONS]\n\nEvolve a loss function; train policies with it.\n\ncommands:")
    for name, verb in VERBS.items():
        print(f"  {name:<10}{(verb.__doc__ or '').splitlines()[0]}")
    print("\n`epg COMMAND --help` lists the options of a command.")
    sys.exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a user's module:attribute is
    try:
        _parse(list(sys.argv[1:] if arguments is None else arguments)).main()
    except BadInput as error:
        console().print(f"epg: {error}", markup=False, soft_wrap=True)
        sys.exit(2)
    except ExecutorFailed as error:
        console().print(f"epg: {error}", markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        console().print("\nepg: stopped.")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
