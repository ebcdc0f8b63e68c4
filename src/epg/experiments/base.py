"""What an experiment is: one claim of the paper as code.

run(lab) -> Data        measured on held-out tasks with losses and policies that `needs` names (training.py)
draw(data) -> figure    in the paper's layout
verdict(data)           what was measured, and whether the claim holds; computed, never written down
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from epg.recipes import PresetName

if TYPE_CHECKING:
    from epg.experiments.training import Lab
    from epg.viz.panels import Figure

SEED = 20261118
"""Which held-out tasks; no table used them before."""
MIN_TASKS = 10
"""With fewer tasks nothing is compared."""


@dataclass(frozen=True)
class Data:
    """What an experiment measured: saved beside its figure, and all that drawing and judging need."""

    facts: dict[str, Any]
    """JSON values."""
    arrays: dict[str, np.ndarray]
    """Arrays by name."""


@dataclass(frozen=True)
class Verdict:
    """What was measured, and what it says about the claim."""

    measured: str
    """A clause with the numbers."""
    holds: bool | None
    """Whether the claim holds here; None: not comparable."""
    why: str = ""
    """Why it is not comparable."""


@dataclass(frozen=True)
class Need:
    """Something trained that an experiment needs."""

    kind: Literal["loss", "maml", "rl2"]
    """An evolved loss, or the policy of a baseline."""
    family: str
    """What it is trained on."""
    seed: int | None = None
    """Seed of its training; None: any."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the preset's."""

    @property
    def label(self) -> str:
        """What messages and directories call it."""
        parts = [] if self.kind == "loss" else [self.kind]
        return "-".join([*parts, self.family, *(f"{name.rpartition('.')[2]}-{value}" for name, value in self.changes)])


@dataclass(frozen=True)
class Scale:
    """How large an experiment is."""

    name: PresetName
    """Preset of what it trains."""
    tasks: int
    """Held-out tasks."""

    @property
    def smoke(self) -> bool:
        """Whether it only shows that the experiment runs."""
        return self.name == "smoke"

    def family(self, name: str) -> str:
        """Return the family to use: at smoke scale a point mass, the same for all figures, compiled once."""
        return "point-goal" if self.smoke else name

    def filmed(self, name: str) -> str:
        """Return the family to film: at smoke scale, the one MuJoCo family whose loss is shipped."""
        return "directional-half-cheetah" if self.smoke else name


SCALES: dict[str, Scale] = {it.name: it for it in (Scale("smoke", 4), Scale("laptop", 20), Scale("paper", 20))}


@dataclass(frozen=True)
class Experiment:
    """One claim of the paper as code."""

    title: str
    """Heading of the figure."""
    claim: str
    """What the paper says, as a clause: `figure N claims that ...`."""
    needs: Callable[[Scale], tuple[Need, ...]]
    """What has to be trained before."""
    run: Callable[[Lab], Data]
    """Measure."""
    draw: Callable[[Data], Figure]
    """Draw in the paper's layout."""
    verdict: Callable[[Data], Verdict]
    """Judge."""
