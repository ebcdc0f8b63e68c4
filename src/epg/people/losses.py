"""Losses by name or path: those shipped with the package, and those in run directories."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epg.parts.artefact import LOSS_MANIFEST, LossArtefact
from epg.parts.artefact import load_loss as load_artefact
from epg.parts.files import read_json
from epg.words.errors import BadInput
from epg.words.settings import Settings, from_dict

SHIPPED = Path(__file__).parent.parent / "losses"
HELD_OUT = "held_out.json"  # beside a shipped loss; tools/results.py writes it


@dataclass(frozen=True)
class Listed:
    """A loss that can be named."""

    name: str
    """What to give to --loss."""
    shipped: bool
    """Whether it came with the package."""
    artefact: LossArtefact
    """The loss."""
    settings: Settings
    """What it was evolved with."""
    held_out: dict[str, Any] | None
    """What policies trained by it reach on held-out tasks, and PPO's on the same; None where nobody has measured it."""

    @property
    def fitness(self) -> float:
        """Mean fitness of the last epochs of its evolution."""
        curve = [value for value in self.artefact.manifest["curve"][-10:] if value is not None]
        return sum(curve) / len(curve) if curve else math.nan


def load_loss(where: str | Path) -> LossArtefact:
    """Load a loss by the name of a shipped one, or from a run directory, loss.json or loss.safetensors."""
    if (SHIPPED / str(where) / LOSS_MANIFEST).is_file() and not Path(where).exists():
        return load_artefact(SHIPPED / str(where))
    if not Path(where).exists():
        names = ", ".join(sorted(path.parent.name for path in SHIPPED.glob(f"*/{LOSS_MANIFEST}"))) or "none"
        raise BadInput(f"no loss at {where}: give a run directory, or the name of a shipped loss ({names}).")
    return load_artefact(where)


def list_losses(runs: Path) -> Iterator[Listed]:
    """Yield the shipped losses, then those of the runs below `runs`; damaged ones are left out."""
    for shipped, root in ((True, SHIPPED), (False, runs)):
        for manifest in sorted(root.glob(f"**/{LOSS_MANIFEST}")):
            try:
                artefact = load_artefact(manifest)
                settings = from_dict(Settings, artefact.manifest["settings"])
            except BadInput:
                continue
            name = manifest.parent.name if shipped else str(manifest.parent)
            measured = manifest.parent / HELD_OUT
            held_out = read_json(measured) if shipped and measured.is_file() else None
            yield Listed(name, shipped, artefact, settings, held_out)
