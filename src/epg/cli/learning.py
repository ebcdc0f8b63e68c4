"""`epg learn`, `epg baseline`, `epg compare`: training policies on held-out tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from epg import api
from epg.cli.output import print_json, print_result
from epg.cli.progress import resumable, status_line, waiting
from epg.core.errors import require

Loss = Annotated[str, arg(metavar="LOSS")]
Family = Annotated[str, arg(metavar="FAMILY")]


@dataclass(frozen=True)
class Learn:
    """Train fresh policies with a loss on held-out tasks (Algorithm 2)."""

    loss: Positional[Loss]
    """Run directory, loss file, or name of a loss in the zoo."""
    family: str | None = None
    """Family to learn in; by default the one the loss was evolved for."""
    tasks: int = 20
    """Number of held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    updates: int | None = None
    """Length of a lifetime in updates; by default that of the evolution."""
    run: Path | None = None
    """Directory for curves, figure and report; by default a new one below runs/."""
    json: bool = False
    """Print one line of JSON instead of a table."""

    def main(self) -> None:
        """Learn and print the table."""
        with waiting(f"learning on {self.tasks} held-out tasks"):
            result = api.learn(
                self.loss, self.family, tasks=self.tasks, seed=self.seed, updates=self.updates, run=self.run
            )
        print_result(result.to_dict(), self.json)


@dataclass(frozen=True)
class Baseline:
    """Train fresh policies with PPO or REINFORCE on held-out tasks, or search the best fixed policy."""

    name: Positional[Literal["ppo", "reinforce", "fixed"]]
    """Which baseline; `fixed` searches one linear policy on training tasks and deploys it without learning."""
    family: Positional[Family]
    """Name of a family or module:attribute."""
    tasks: int = 20
    """Number of held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    updates: int | None = None
    """Length of a lifetime in updates of the family's laptop preset (ppo, reinforce)."""
    env_steps: int | None = None
    """Environment steps of the search (fixed)."""
    run: Path | None = None
    """Directory for curves, figure and report; by default a new one below runs/."""
    resume: bool = False
    """Continue a search in its run directory (fixed)."""
    processes: int | None = None
    """Processes of the search; by default one per core (fixed)."""
    json: bool = False
    """Print one line of JSON instead of a table."""

    def main(self) -> None:
        """Learn or search, and print the result."""
        if self.name == "fixed":
            self._fixed()
            return
        for option, given in (("env-steps", self.env_steps), ("processes", self.processes), ("resume", self.resume)):
            require(not given, f"--{option} is for the baseline fixed, not for {self.name}.")
        with waiting(f"{self.name} on {self.tasks} held-out tasks"):
            result = api.baseline(
                self.name, self.family, tasks=self.tasks, seed=self.seed, updates=self.updates, run=self.run
            )
        print_result(result.to_dict(), self.json)

    def _fixed(self) -> None:
        require(self.updates is None, "--updates is for ppo and reinforce: a fixed policy does not learn.")
        require(self.env_steps is not None or self.resume, "baseline fixed needs --env-steps: its budget.")
        require(not self.resume or self.run is not None, "--resume needs --run: the directory to continue.")
        run = self.run or api.new_run_path(f"fixed-{self.family}")
        again = ["epg", "baseline", "fixed", self.family, "--run", str(run), "--resume"]
        with resumable(again), status_line(f"searching a fixed policy for {self.family}") as status:
            result = api.fixed_policy(
                self.family,
                env_steps=self.env_steps,
                seed=self.seed,
                tasks=self.tasks,
                run=run,
                resume=self.resume,
                processes=self.processes,
                on_step=lambda it: status(f"step {it.epoch}: mean return {it.fitness_mean:.2f}"),
            )
        if self.json:
            print_json(result)
            return
        interval = "{value:.2f} ({low:.2f} to {high:.2f})".format(**result["interval"])
        print(f"fixed policy on {result['tasks']} held-out tasks, no learning: return (IQM, 95 % interval) {interval}")
        print(f"found in {result['env_steps']:,} environment steps\npolicy    {result['run']}")


@dataclass(frozen=True)
class Compare:
    """Compare a loss with tuned PPO on the same held-out tasks."""

    loss: Positional[Loss]
    """Run directory, loss file, or name of a loss in the zoo."""
    family: str | None = None
    """Family to compare in; by default the one the loss was evolved for."""
    tasks: int = 20
    """Number of held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    updates: int | None = None
    """Length of a lifetime in updates of the loss; by default that of the evolution."""
    ppo_steps: tuple[int, ...] = (api.PAPER_STEPS,)
    """Steps of further PPO runs, beside the one with as many steps as the loss."""
    run: Path | None = None
    """Directory for curves, figure and report; by default a new one below runs/."""
    json: bool = False
    """Print one line of JSON instead of a table."""

    def main(self) -> None:
        """Compare and print the table."""
        with waiting(f"the loss and PPO on {self.tasks} held-out tasks"):
            result = api.compare(
                self.loss,
                self.family,
                tasks=self.tasks,
                seed=self.seed,
                updates=self.updates,
                ppo_steps=self.ppo_steps,
                run=self.run,
            )
        print_result(result.to_dict(), self.json)
