"""`epg render`: film a policy at stages of its lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from epg import api
from epg.cli.arguments import Verb
from epg.cli.output import print_json, say
from epg.cli.progress import status_line

Loss = Annotated[str | None, arg(metavar="LOSS")]


@dataclass(frozen=True, kw_only=True)
class Render(Verb):
    """Film a policy at stages of its lifetime: a strip (PNG) and a video (GIF, MP4)."""

    loss: Positional[Loss] = None
    """Run directory, loss file, or name of a loss in the zoo; without it, name a --baseline."""
    family: str | None = None
    """A MuJoCo family; by default the one the loss was evolved for."""
    baseline: Literal["ppo", "reinforce"] | None = None
    """Film this learner instead of a loss."""
    task: int = 0
    """Which held-out task, counted from 0."""
    stages: int = 5
    """How many stages of the lifetime, from before the first update to after the last."""
    seed: int = 0
    """Which held-out tasks, initial policy and random numbers."""
    updates: int | None = None
    """Length of the lifetime in updates; by default that of the evolution."""
    out: Path | None = None
    """Directory for the film; by default a new one below the run, or below runs/."""
    video: bool = True
    """Write a video beside the strip."""

    def main(self) -> None:
        """Train, film, and say what each stage came to."""
        with status_line("training a policy and filming it"):
            result = api.render(**self.arguments)
        if self.json:
            print_json(result.to_dict())
            return
        say(result.title)
        for it in result.film.episodes:
            end = "ended after" if it.terminated else "all of"
            say(f"  update {it.update:>5}   return {it.episode_return:>10.4g}   {end} {len(it.qpos) - 1} steps")
        say("\n".join([*map(str, result.files), *([result.hint] if result.hint else [])]))
