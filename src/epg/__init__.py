"""Evolved Policy Gradients: evolve a loss function, then train policies with it.

The same verbs as the command line: `epg.evolve`, `epg.learn`, `epg.compare`, `epg.baseline`, `epg.train_baseline`,
`epg.probe`, `epg.figure`, `epg.act`, `epg.check`, `epg.report`, `epg.render`; `epg.load_loss`, `epg.load_policy` open
what they saved. Importing `epg` loads nothing heavy; JAX comes with the first verb that needs it. The families are also
Gymnasium environments: `import epg.envs`, or `import epg` after Gymnasium, registers them. (Gymnasium 1 has no entry
point for plugins.)
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "evolve": "epg.api",
    "learn": "epg.api",
    "compare": "epg.api",
    "baseline": "epg.api",
    "train_baseline": "epg.api",
    "probe": "epg.api",
    "figure": "epg.api",
    "act": "epg.api",
    "check": "epg.api",
    "report": "epg.api",
    "render": "epg.api",
    "Learner": "epg.envs.learner",
    "PolicyOutputs": "epg.lifetime.outside",
    "load_settings": "epg.api",
    "load_loss": "epg.zoo",
    "load_policy": "epg.policies.trained",
    "preset": "epg.recipes",
    "use_single_thread": "epg.core.runtime",
    "Settings": "epg.settings",
    "Spaces": "epg.core.spaces",
    "BadInput": "epg.core.errors",
    "JaxFamily": "epg.families.base",
    "MujocoFamily": "epg.families.mujoco.base",
    "Clock": "epg.families.mujoco.base",
    "gym_family": "epg.families.gym_factory",
    "find_family": "epg.families.registry",
}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (all are strings)

if TYPE_CHECKING:
    from epg.api import act as act
    from epg.api import baseline as baseline
    from epg.api import check as check
    from epg.api import compare as compare
    from epg.api import evolve as evolve
    from epg.api import figure as figure
    from epg.api import learn as learn
    from epg.api import load_settings as load_settings
    from epg.api import probe as probe
    from epg.api import render as render
    from epg.api import report as report
    from epg.api import train_baseline as train_baseline
    from epg.core.errors import BadInput as BadInput
    from epg.core.runtime import use_single_thread as use_single_thread
    from epg.core.spaces import Spaces as Spaces
    from epg.envs.learner import Learner as Learner
    from epg.families.base import JaxFamily as JaxFamily
    from epg.families.gym_factory import gym_family as gym_family
    from epg.families.mujoco.base import Clock as Clock
    from epg.families.mujoco.base import MujocoFamily as MujocoFamily
    from epg.families.registry import find_family as find_family
    from epg.lifetime.outside import PolicyOutputs as PolicyOutputs
    from epg.policies.trained import load_policy as load_policy
    from epg.recipes import preset as preset
    from epg.settings import Settings as Settings
    from epg.zoo import load_loss as load_loss


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'epg' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if "gymnasium" in sys.modules:
    importlib.import_module("epg.envs")
