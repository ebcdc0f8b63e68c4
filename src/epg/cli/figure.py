"""`epg figure`: the paper's figures, each with its claim and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from epg import api
from epg.cli.arguments import Verb
from epg.cli.output import print_json, say
from epg.cli.progress import resumable, status_line


@dataclass(frozen=True, kw_only=True)
class Figure(Verb):
    """Reproduce a figure of the paper, and say whether its claim holds here."""

    name: Positional[Annotated[str, arg(metavar="N")]]
    """Number of the figure, 3 to 22; correlation (section 4.1); or all."""
    scale: api.PresetName = "laptop"
    """How large: smoke (seconds, shows only that it runs), laptop (minutes to hours), paper (days)."""
    run: Path | None = None
    """Directory for figures and for what they train; by default runs/figures/SCALE. A second call goes on there."""
    loss: str | None = None
    """Use this loss (run directory, file, zoo name) instead of one that is found or evolved."""
    yes: bool = False
    """Begin even if training would take more than a day."""

    def main(self) -> None:
        """Reproduce, and print a sentence per figure."""
        again = ["epg", "figure", self.name, "--scale", self.scale]
        again += [
            word for name in ("run", "loss") if (value := getattr(self, name)) for word in (f"--{name}", str(value))
        ]
        given = {name: value for name, value in self.arguments.items() if name != "name"}
        names = None if self.name == "all" else [self.name]
        with resumable([*again, *(["--yes"] if self.yes else [])]), status_line(f"figure {self.name}") as status:
            results = api.figures(names, **given, on_progress=status, on_figure=self._show)
        if self.json:
            each = [it.to_dict() for it in results]
            print_json(each if names is None else each[0])

    def _show(self, result: Any) -> None:
        if not self.json:
            say(f"{result.sentence}\n    {result.files[0]}")
