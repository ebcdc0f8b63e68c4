"""The other verbs: each a dataclass of its arguments with a `main`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.markup import escape
from rich.table import Column, Table
from tyro.conf import Positional, arg

from epg.parts.families import REGISTRY
from epg.people import api
from epg.people.cli.output import print_json, show
from epg.people.progress import console, waiting
from epg.words.settings import require

Family = Annotated[str, arg(metavar="FAMILY")]


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
        show(result, self.json)


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
        show(result, self.json)


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
    ppo_steps: int | None = None
    """Steps that PPO learns for; by default as many as the loss has."""
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
                ppo_steps=self.ppo_steps,
                run=self.run,
            )
        show(result, self.json)


@dataclass(frozen=True)
class Tasks:
    """List the families, or show one family's specification."""

    family: Positional[Family | None] = None
    """Name of a family or module:attribute; without it all are listed."""
    picture: Path | None = None
    """Draw some tasks of the family into this PNG (MuJoCo families)."""
    json: bool = False
    """End with one line of JSON on standard output."""

    def main(self) -> None:
        """List, show or draw."""
        if self.picture is not None:
            require(self.family is not None, "--picture needs a family: epg tasks FAMILY --picture FILE.png.")
            with waiting(f"drawing {self.family}"):
                print(api.picture(str(self.family), self.picture))
            return
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
            print_json([{"name": it.name, "version": it.version, "horizon": it.horizon} for it in families])


CAPTION = (
    "Steps: that its evolution took. Return: of policies trained by it on held-out tasks, interquartile mean and 95 % "
    "interval; of your runs: mean fitness of the last epochs. In brackets: the family, if a loss is not named after it."
)


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
        names = "reward", "steps", "return", "licence"
        listing = Table(Column("loss", overflow="fold"), *names, caption=CAPTION)
        for it in found:
            manifest = it.artefact.manifest
            listing.add_row(
                it.name if it.name == manifest["family"] else f"{it.name} ({manifest['family']})",
                "seen" if it.settings.loss.reward else "not seen",
                f"{manifest['env_steps'] / 1e6:.1f} M",
                "{value:.3g} ({low:.3g} to {high:.3g})".format(**it.held_out["return"])
                if it.held_out
                else f"{it.fitness:.3g}",
                manifest["licence"],
            )
        console().print(listing if found else f"no losses yet: evolve one with `epg evolve {next(iter(REGISTRY))}`")
        if self.json:
            keys = ("family", "epochs", "env_steps", "sha256", "licence")
            print_json(
                [
                    {"name": it.name}
                    | {k: it.artefact.manifest[k] for k in keys}
                    | {"reward": it.settings.loss.reward, "fitness": it.fitness, "held_out": it.held_out}
                    for it in found
                ]
            )


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
            print_json([{"name": it.name, "passed": it.passed, "problem": it.problem} for it in checks])
        if not all(it.passed for it in checks):
            sys.exit(1)


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
            print_json(results)
