"""`epg probe`: the loss card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table
from tyro.conf import Positional, arg

from epg import api
from epg.cli.output import print_json, print_table
from epg.cli.progress import status_line


@dataclass(frozen=True)
class Probe:
    """Measure what a loss is: does it learn, or does it carry a fixed policy? Prints its loss card."""

    loss: Positional[Annotated[str, arg(metavar="LOSS")]]
    """Run directory, loss file, or name of a loss in the zoo."""
    family: str | None = None
    """Family to probe in; by default the one the loss was evolved for."""
    tasks: int = 32
    """Number of held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    run: Path | None = None
    """Directory for the card and its figure; by default a new one below runs/."""
    json: bool = False
    """Print one line of JSON instead of a table."""

    def main(self) -> None:
        """Probe and print the card."""
        with status_line("preparing") as status:
            result = api.probe(self.loss, self.family, tasks=self.tasks, seed=self.seed, run=self.run, on_probe=status)
        if self.json:
            print_json(result)
            return
        title = f"{result['family']}: loss card, {result['tasks']} held-out tasks"
        table = Table("probe", "steps", "return (IQM)", "95 % interval", "difference (mean)", title=title)
        for it in result["probes"]:
            interval, difference = it["interval"], it["difference"]
            gap = "" if difference is None else "{value:+.2f} ({low:+.2f} to {high:+.2f})".format(**difference)
            ends = f"{interval['low']:.2f} to {interval['high']:.2f}"
            table.add_row(it["name"], f"{it['steps']:,}", f"{interval['value']:.2f}", ends, gap)
        print_table(table)
        print(f"card      {result['run']}/card.json\nfigure    {result['run']}/figures/loss_card.png")
