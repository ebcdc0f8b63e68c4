"""`epg losses`, `epg report` and `epg demo`: what runs leave behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Column, Table
from tyro.conf import Positional, arg

from epg import api
from epg.cli.arguments import Verb
from epg.cli.demo import demo
from epg.cli.output import print_json, print_seeds, print_table, say
from epg.core.errors import require

CAPTION = (
    "Steps: environment steps of its evolution. Return: of policies trained by it on held-out tasks, interquartile "
    "mean and 95 % interval; of your runs: mean fitness of the last epochs. Card (`epg probe`): return if its target "
    "acts without learning / without its history / with flipped actuators. In brackets: the family, if it differs."
)


@dataclass(frozen=True, kw_only=True)
class Losses(Verb):
    """List the losses that can be used: those of the zoo and those of your runs."""

    runs: Path = api.RUNS
    """Where to look for runs."""

    def main(self) -> None:
        """List."""
        require(self.runs == api.RUNS or os.path.isdir(self.runs), f"--runs: there is no directory {self.runs}.")
        found = list(api.list_losses(self.runs))
        if self.json:
            keys = ("family", "epochs", "env_steps", "sha256", "licence")
            print_json(
                [
                    {"name": it.name}
                    | {k: it.artefact.manifest[k] for k in keys}
                    | {"reward": it.sees_reward, "fitness": it.fitness, "held_out": it.held_out}
                    | {"warm_start": it.artefact.manifest.get("warm_start")}
                    | {"card": it.card_numbers or None}
                    for it in found
                ]
            )
            return
        if not found:
            say("no losses yet: evolve one with `epg evolve point-goal`", stderr=True)
            return
        names = "reward", "started from", "steps", "return", "card", "licence"
        listing = Table(Column("loss", no_wrap=True, overflow="fold"), *names, caption=CAPTION)
        for it in found:
            manifest = it.artefact.manifest
            start = manifest.get("warm_start")
            listing.add_row(
                it.name if it.name == manifest["family"] else f"{it.name} ({manifest['family']})",
                "seen" if it.sees_reward else "not seen",
                f"a {start['kind']}" if start else "fresh phi",
                f"{manifest['env_steps'] / 1e6:.1f} M",
                "{} ({} to {})".format(*(_short(it.held_out["return"][name]) for name in ("value", "low", "high")))
                if it.held_out
                else _short(it.fitness),
                " / ".join(map(_short, it.card_numbers.values())),
                manifest["licence"] or "none stated",
            )
        print_table(listing)


def _short(value: float) -> str:
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


@dataclass(frozen=True)
class Report:
    """Draw a run's figures and its HTML report again, from what it saved."""

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run directory, or the directory of several seeds."""

    def main(self) -> None:
        """Draw."""
        report = api.report(self.run)
        if api.seed_runs(self.run):
            print_seeds(api.summarise_seeds(self.run))
        say(report)


@dataclass(frozen=True)
class Watch:
    """Show an evolution in the browser while it runs: a live page, on this machine only."""

    run: Positional[Annotated[Path, arg(metavar="RUN")]]
    """Run directory."""
    port: int = 0
    """Port of the page; 0 takes a free one."""

    def main(self) -> None:
        """Serve until Ctrl-C."""
        with api.watch(self.run, self.port) as server:
            say(f"{server.url}   (Ctrl-C ends it)")
            server.serve_forever()


@dataclass(frozen=True, kw_only=True)
class Demo(Verb):
    """Evolve two losses in minutes and compare them with PPO; train half-cheetahs with a shipped loss."""

    run: Path | None = None
    """Directory for both runs; by default a new one below runs/."""

    def main(self) -> None:
        """Run the demonstration."""
        results = demo(self.run or api.new_run_path("demo"), quiet=self.json)
        if self.json:
            print_json(results)
