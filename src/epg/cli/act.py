"""`epg act`: play a trained policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from epg import api
from epg.cli.arguments import Verb
from epg.cli.output import print_json, say
from epg.cli.progress import status_line


@dataclass(frozen=True, kw_only=True)
class Act(Verb):
    """Play episodes with a trained policy, in its own family or in any Gymnasium environment that fits it."""

    policy: Positional[Annotated[str, arg(metavar="POLICY")]]
    """A run of learn, baseline or compare, one of its policies/METHOD, or a directory that a policy was saved in."""
    env: str | None = None
    """Id of a Gymnasium environment; by default the task that the policy was trained on."""
    task: int = 0
    """Which of a run's policies: that of this held-out task, counted from 0."""
    episodes: int = 5
    """Number of episodes."""
    seed: int = 0
    """Seed of the first episode; each further one has the next."""
    sample: bool = False
    """Sample actions instead of taking the most likely ones."""
    video: Path | None = None
    """Film the first episode into this GIF or MP4."""

    def main(self) -> None:
        """Play and print the returns."""
        with status_line("playing"):
            played = api.act(**self.arguments)
        if self.json:
            print_json({**asdict(played), "video": None if played.video is None else str(played.video)})
            return
        for number, (total, steps) in enumerate(zip(played.returns, played.lengths, strict=True)):
            say(f"episode {number}   return {total:>10.4g}   {steps} steps")
        say(f"{played.env}: mean return {sum(played.returns) / len(played.returns):.4g}")
        if played.video:
            say(played.video)
