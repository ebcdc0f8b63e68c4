"""What the verbs have in common: their names for arguments are those of the API."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

Family = Annotated[str, arg(metavar="FAMILY")]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb that prints something."""

    json: bool = False
    """Print one line of JSON instead of text."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Return what its function in the API takes."""
        return {it.name: getattr(self, it.name) for it in fields(self) if it.name != "json"}


@dataclass(frozen=True, kw_only=True)
class OnHeldOutTasks(Verb):
    """A verb that trains policies on held-out tasks."""

    tasks: int = 20
    """Number of held-out tasks."""
    seed: int = 0
    """Which held-out tasks, initial policies and random numbers."""
    run: Path | None = None
    """Directory for results; by default a new one below runs/."""


@dataclass(frozen=True, kw_only=True)
class WithLoss(OnHeldOutTasks):
    """A verb that trains them with a loss."""

    loss: Positional[Annotated[str, arg(metavar="LOSS")]]
    """Run directory, loss file, or name of a loss in the zoo."""
    family: str | None = None
    """Family to train in; by default the one the loss was evolved for."""
