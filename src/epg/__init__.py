"""Evolved Policy Gradients: evolve a loss function, then train policies with it.

The same verbs as the command line: `epg.evolve`, `epg.learn`, `epg.compare`, `epg.baseline`, `epg.load_loss`,
`epg.check`, `epg.report`, `epg.render`. Importing `epg` loads nothing heavy; JAX comes with the first verb that
needs it.
Its families are also Gymnasium environments: `import epg, gymnasium; gymnasium.make("epg/RandomHopper-v0")`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from epg.people.late import announce

__version__ = "0.1.0"

_PLACES = {
    "evolve": "epg.people.api",
    "learn": "epg.people.api",
    "compare": "epg.people.api",
    "baseline": "epg.people.api",
    "check": "epg.people.api",
    "report": "epg.people.api",
    "render": "epg.people.api",
    "load_loss": "epg.people.losses",
    "preset": "epg.people.presets",
    "Settings": "epg.words.settings",
    "Spaces": "epg.words.settings",
    "BadInput": "epg.words.errors",
    "JaxFamily": "epg.parts.families.base",
    "Turns": "epg.parts.families.base",
    "MujocoFamily": "epg.parts.families.mujoco_family",
    "Clock": "epg.parts.families.mujoco_family",
    "gym_family": "epg.parts.families.gym_family",
    "load_family": "epg.parts.families",
}

__all__ = ["__version__", *_PLACES]  # noqa: PLE0604 (all are strings)

if TYPE_CHECKING:
    from epg.parts.families import load_family as load_family
    from epg.parts.families.base import JaxFamily as JaxFamily
    from epg.parts.families.base import Turns as Turns
    from epg.parts.families.gym_family import gym_family as gym_family
    from epg.parts.families.mujoco_family import Clock as Clock
    from epg.parts.families.mujoco_family import MujocoFamily as MujocoFamily
    from epg.people.api import baseline as baseline
    from epg.people.api import check as check
    from epg.people.api import compare as compare
    from epg.people.api import evolve as evolve
    from epg.people.api import learn as learn
    from epg.people.api import render as render
    from epg.people.api import report as report
    from epg.people.losses import load_loss as load_loss
    from epg.people.presets import preset as preset
    from epg.words.errors import BadInput as BadInput
    from epg.words.settings import Settings as Settings
    from epg.words.settings import Spaces as Spaces


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'epg' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


announce()
