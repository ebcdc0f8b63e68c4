"""The zoo: losses that come with the package, and how any loss is named: by its zoo name or by a path."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epg.core.errors import BadInput, did_you_mean, require
from epg.families.registry import REGISTRY, WRAP, is_gymnasium_id
from epg.settings import Settings, from_dict
from epg.storage.card_file import CARD, main_numbers, read_card
from epg.storage.checked import interval, read_object
from epg.storage.loss_artefact import LOSS, LossArtefact
from epg.storage.loss_artefact import load_loss as load_artefact

if TYPE_CHECKING:  # JAX comes with the first gradient
    from epg.learners.learned import LearnedLoss
    from epg.lifetime.outside import LossWindow, OutsideLoss, PolicyOutputs
    from epg.settings import LifetimeSettings

ZOO = Path(__file__).parent
HELD_OUT = "held_out.json"  # beside a loss of the zoo: its returns on held-out tasks (tools/results.py)


class Loss(LossArtefact):
    """A loss, ready to train policies of epg; and those of other frameworks, by `window` and `gradient`."""

    def window(self, seed: int = 0) -> LossWindow:
        """Return an empty window for one lifetime."""
        from epg.evaluation.fitting import constants_of, obs_stats_of
        from epg.lifetime.outside import LossWindow

        learner, lifetime = self._learner
        return LossWindow(learner, lifetime, obs_stats_of(self), constants_of(self.manifest["family"]), seed)

    def gradient(self, window: LossWindow, outputs: PolicyOutputs, rows: Any) -> PolicyOutputs:
        """Return dL/d(outputs) of the mean of L_i over the minibatch `rows`, in NumPy."""
        return self._outside.gradient(window, outputs, rows)

    @cached_property
    def _learner(self) -> tuple[LearnedLoss, LifetimeSettings]:
        from epg.core.spaces import Spaces
        from epg.evaluation.fitting import loss_learner

        spaces = from_dict(Spaces, self.manifest["spaces"], "the loss's spaces")
        settings, learner = loss_learner(self, spaces, "itself")
        return learner, settings.lifetime

    @cached_property
    def _outside(self) -> OutsideLoss:
        from epg.lifetime.outside import OutsideLoss

        return OutsideLoss(self._learner[0], self.phi)


@dataclass(frozen=True)
class LossEntry:
    """A loss that can be named."""

    name: str
    """What to type."""
    shipped: bool
    """Whether it comes with the package."""
    artefact: LossArtefact
    """The loss."""
    settings: Settings
    """What it was evolved with."""
    held_out: dict[str, Any] | None
    """Returns of policies trained by it on held-out tasks, and PPO's on the same; None if not measured."""
    card: dict[str, Any] | None
    """Its loss card; None if not measured."""

    @property
    def sees_reward(self) -> bool:
        """Whether it learns from the reward at test time."""
        return not self.settings.has_loss or self.settings.loss.sees_reward

    @property
    def card_numbers(self) -> dict[str, float]:
        """The returns of its loss card that tell a clone from a learner; empty without a card."""
        return main_numbers(self.card) if self.card else {}

    @property
    def fitness(self) -> float:
        """Mean fitness of the last epochs of its evolution."""
        curve = [value for value in self.artefact.manifest["curve"][-10:] if value is not None]
        return sum(curve) / len(curve) if curve else math.nan


def zoo_names() -> list[str]:
    """Return the names of the losses in the zoo."""
    return sorted(path.parent.name for path in ZOO.glob(f"*/{LOSS.manifest}"))


def is_loss(where: str | Path) -> bool:
    """Return whether this names a loss of the zoo, or a place that holds one."""
    return str(where) in zoo_names() or os.path.isfile(LOSS.paths(where)[0])


def load_loss(where: str | Path) -> Loss:
    """Load a loss by its name in the zoo, or from a run directory, loss.json or loss.safetensors.

    RUN/first is the loss of a run before evolution.
    """
    named = isinstance(where, str | os.PathLike)
    require(named, f"a loss is named by its place or its name in the zoo, not by {where!r}.")
    if str(where) in zoo_names() and not os.path.exists(where):
        where = ZOO / str(where)
    if not os.path.exists(where):
        raise BadInput(_no_loss(str(where)))
    loaded = load_artefact(where)
    return Loss(loaded.phi, loaded.tensors, loaded.manifest)


def _no_loss(name: str) -> str:
    """Say what to do about a name that is no loss."""
    if name in REGISTRY:
        return f"no loss for {name} is shipped: `epg evolve {name}` makes one; then name its run directory."
    if is_gymnasium_id(name) and ("/" not in name or name.startswith("epg/")):  # else it is a path
        return f"{name} is a Gymnasium id, not a loss: {WRAP}, evolve a loss for it, and name its run directory."
    names, near = ", ".join(zoo_names()) or "none", did_you_mean(name, zoo_names())
    return f"no loss at {name}{near}: give a run directory, or the name of a loss in the zoo ({names})."


def list_losses(runs: Path) -> Iterator[LossEntry]:
    """Yield the losses of the zoo, then the evolved ones of the runs below `runs`; damaged ones are left out."""
    for shipped, root in ((True, ZOO), (False, runs)):
        for manifest in sorted(root.glob(f"**/{LOSS.manifest}")) if os.path.isdir(root) else ():
            if manifest.parent.name == "first":
                continue
            try:
                artefact = load_artefact(manifest)
                settings = from_dict(Settings, artefact.manifest["settings"])
            except BadInput:
                continue
            name = manifest.parent.name if shipped else str(manifest.parent)
            digest = artefact.manifest["sha256"]
            held_out = _measured(_read_held_out, manifest.parent / HELD_OUT, "sha256", digest) if shipped else None
            card = _measured(read_card, manifest.parent / CARD, "loss", digest)
            yield LossEntry(name, shipped, artefact, settings, held_out, card)


def _read_held_out(path: Path) -> dict[str, Any]:
    """Read returns on held-out tasks; a number that was not finite is NaN."""
    content = read_object(path, "sha256", "return")
    return {**content, "return": interval(content["return"], path)}


def _measured(read: Callable[[Path], Any], path: Path, key: str, digest: str) -> dict[str, Any] | None:
    """Read what was measured of a loss; None if nothing was, if it is of another loss, or damaged."""
    try:
        content = read(path) if os.path.isfile(path) else {}
    except BadInput:
        return None
    return content if isinstance(content, dict) and content.get(key) == digest else None
