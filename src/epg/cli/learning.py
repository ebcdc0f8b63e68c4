"""`epg learn`, `epg compare`, `epg probe`, `epg baseline`: training policies on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from epg import api
from epg.cli.arguments import Family, OnHeldOutTasks, WithLoss
from epg.cli.output import difference, print_json, print_result, print_table, say
from epg.cli.progress import resumable, status_line
from epg.core.errors import require


def curves_on(status: Callable[[str], None]) -> Callable[[Any], None]:
    """Return an `on_update` that names the curve that has just been learned."""
    return lambda update: status(f"done: {update.curve}") if update.update == 1 else None


@dataclass(frozen=True)
class PolicyOptions:
    """Another policy than the one the loss was evolved with."""

    hidden: tuple[int, ...] | None = None
    """Width of each hidden layer; by default those of the evolution."""
    activation: Literal["tanh", "relu", "elu", "silu"] | None = None
    """Activation of the hidden layers; by default that of the evolution."""


@dataclass(frozen=True, kw_only=True)
class WithTransfer(WithLoss):
    """A verb that may train other policies, for longer."""

    updates: int | None = None
    """Length of a lifetime in updates of the loss; by default that of the evolution."""
    stretch: bool = False
    """Stretch the schedule of the inner step size over --updates; by default it stays as evolved, then at its end."""
    policy: PolicyOptions = PolicyOptions()
    lifetimes: int = api.LIFETIMES
    """Lifetimes per task, averaged."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what the API takes; of the policy only what was given."""
        policy = {name: value for name, value in vars(self.policy).items() if value is not None}
        return {**super().arguments, "policy": policy}


@dataclass(frozen=True, kw_only=True)
class Learn(WithTransfer):
    """Train fresh policies with a loss on held-out tasks (Algorithm 2)."""

    def main(self) -> None:
        """Learn and print the table."""
        with status_line(f"learning on {self.tasks} held-out tasks") as status:
            result = api.learn(**self.arguments, on_update=curves_on(status))
        print_result(result.to_dict(), self.json)


@dataclass(frozen=True, kw_only=True)
class Compare(WithTransfer):
    """Compare a loss with tuned PPO, MAML, RL² and fixed policies on the same held-out tasks."""

    others: Annotated[tuple[str, ...], arg(name="with")] = ("ppo",)
    """Methods to compare with: ppo; maml, rl2, fixed, fixed-ppo (the newest trained one below runs/); run directories
    of these or of evolutions; names of losses."""
    ppo_steps: tuple[int, ...] = (api.PAPER_STEPS,)
    """Steps of further PPO runs, beside the one with as many steps as the loss."""
    maml_steps: int | None = None
    """Steps of one update of MAML; by default as many as the loss has in all."""

    def main(self) -> None:
        """Compare and print the table."""
        require(bool(self.others), "--with needs a method to compare with: ppo, maml, rl2, fixed, fixed-ppo or a loss.")
        with status_line(f"the loss and {', '.join(self.others)} on {self.tasks} held-out tasks") as status:
            result = api.compare(**self.arguments, on_update=curves_on(status))
        print_result(result.to_dict(), self.json)


@dataclass(frozen=True, kw_only=True)
class Probe(WithLoss):
    """Measure what a loss is: does it learn, or does it carry a fixed policy? Prints its loss card."""

    tasks: int = 32
    """Number of held-out tasks."""

    def main(self) -> None:
        """Probe and print the card."""
        with status_line("preparing") as status:
            card = api.probe(**self.arguments, on_probe=status)
        if self.json:
            print_json({"run": str(card.run), **card.to_dict()})
            return
        title = f"{card.family}: loss card, {self.tasks} held-out tasks"
        table = Table("probe", "steps", "return (IQM)", "95 % interval", "difference (mean)", title=title)
        for it in card.probes:
            interval, gap = it.interval, card.difference(it)
            ends = f"{interval.low:.2f} to {interval.high:.2f}"
            apart = difference(None if gap is None else gap.to_dict())
            table.add_row(it.name, f"{it.steps:,}", f"{interval.value:.2f}", ends, apart)
        print_table(table)
        gradients = card.gradients.to_dict()
        rho = "{value:.2f} ({low:.2f} to {high:.2f})".format(**gradients["correlation"])
        weights = [f"{name} {it['at_t']:.2g}, {it['elsewhere']:.2g}" for name, it in gradients["sensitivity"].items()]
        say(f"gradients: Spearman's correlation with PPO's {rho}, mean over updates and tasks")
        say(f"norm of dL_t/dx at time t, and summed over the rest of the window: {'; '.join(weights)}")
        say(f"card      {card.run}/card.json\nfigure    {card.run}/figures/loss_card.png")


@dataclass(frozen=True, kw_only=True)
class Baseline(OnHeldOutTasks):
    """Train fresh policies with PPO or REINFORCE on held-out tasks; or train MAML, RL² or a fixed policy for them."""

    name: Positional[Literal["ppo", "reinforce", "fixed", "fixed-ppo", "maml", "rl2"]]
    """Which baseline. The last four are trained on training tasks first: one linear policy by random search, one MLP by
    PPO, an initial policy for gradient steps, a recurrent policy."""
    family: Positional[Family]
    """Name of a family or module:attribute."""
    updates: int | None = None
    """Length of a lifetime in updates of the family's laptop preset (ppo, reinforce)."""
    lifetimes: int = api.LIFETIMES
    """Lifetimes per task, averaged."""
    env_steps: int | None = None
    """Environment steps on training tasks (fixed, fixed-ppo, maml, rl2)."""
    resume: bool = False
    """Continue a training in its run directory (fixed, fixed-ppo, maml, rl2)."""
    processes: int | None = None
    """Processes of the search; by default one per core (fixed)."""

    def main(self) -> None:
        """Learn or train, and print the result."""
        given = self.arguments
        if self.name in ("ppo", "reinforce"):
            for option in ("env_steps", "processes", "resume"):
                flag = option.replace("_", "-")
                require(not given.pop(option), f"--{flag} is for fixed, fixed-ppo, maml and rl2, not for {self.name}.")
            with status_line(f"{self.name} on {self.tasks} held-out tasks") as status:
                result = api.baseline(**given, on_update=curves_on(status))
        else:
            require(given.pop("updates") is None, f"--updates is for ppo and reinforce, not for {self.name}.")
            result = self._train(**given)
        print_result(result.to_dict(), self.json)

    def _train(self, **given: Any) -> Any:
        require(self.env_steps is not None or self.resume, f"baseline {self.name} needs --env-steps: its budget.")
        require(not self.resume or self.run is not None, "--resume needs --run: the directory to continue.")
        alone = self.processes is None or self.name == "fixed"
        require(alone, f"--processes is for fixed, not for {self.name}: it trains in this process.")
        given["run"] = self.run or api.new_run_path(f"{self.name}-{self.family}")
        again = ["epg", "baseline", self.name, self.family, "--run", str(given["run"]), "--resume"]
        with resumable(again), status_line(f"training {self.name} for {self.family}") as status:
            return api.train_baseline(
                **given, on_step=lambda it: status(f"step {it.epoch + 1}: mean return {it.fitness_mean:.2f}")
            )
