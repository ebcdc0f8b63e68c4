"""Families by name. Registering one is this file's line, its family file and its recipe file."""

import importlib
import re
import sys
from dataclasses import dataclass
from typing import Any

from epg.core.errors import BadInput, did_you_mean, require


@dataclass(frozen=True)
class Entry:
    """Where a family is, as text: naming a family loads nothing."""

    target: str
    """`module:attribute` of the family."""
    recipe: str
    """Module of its recipe, in epg.recipes."""
    version: int = 1
    """The family's version, for the id of its Gymnasium environment."""
    time_limit: int | None = None
    """The family's horizon; None: its environment has no time limit."""


def _native(target: str, recipe: str, time_limit: int) -> Entry:
    return Entry(f"epg.families.native.{target}", recipe, time_limit=time_limit)


def _mujoco(target: str, recipe: str, time_limit: int | None) -> Entry:
    return Entry(f"epg.families.mujoco.{target}", recipe, time_limit=time_limit)


REGISTRY = {
    "point-goal": _native("point:POINT_GOAL", "point_goal", 32),
    "point-reach": _native("point:POINT_REACH", "point_reach", 32),
    "random-pendulum": _native("pendulum:RANDOM_PENDULUM", "random_pendulum", 200),
    "random-cart-pole": _native("cart_pole:RANDOM_CART_POLE", "random_cart_pole", 200),
    "random-hopper": _mujoco("hopper:RANDOM_HOPPER", "random_hopper", 1000),
    "random-walker": _mujoco("walker:RANDOM_WALKER", "random_walker", 1000),
    "random-reacher": _mujoco("reacher:RANDOM_REACHER", "random_reacher", 50),
    "directional-hopper": _mujoco("hopper:DIRECTIONAL_HOPPER", "directional_hopper", 1000),
    "directional-half-cheetah": _mujoco("half_cheetah:DIRECTIONAL_HALF_CHEETAH", "directional_half_cheetah", 200),
    "signed-half-cheetah": _mujoco("half_cheetah:SIGNED_HALF_CHEETAH", "signed_half_cheetah", 200),
    "goal-ant": _mujoco("ant:GOAL_ANT", "goal_ant", 200),
    "goal-ant-right": _mujoco("ant:GOAL_ANT_RIGHT", "goal_ant", 200),
    "goal-ant-left": _mujoco("ant:GOAL_ANT_LEFT", "goal_ant", 200),
    "goal-ant-no-reset": _mujoco("ant:GOAL_ANT_NO_RESET", "goal_ant", None),
    "fetch-reach": _mujoco("fetch:FETCH_REACH", "fetch_reach", 50),
}

VARIANTS = {
    "directional-half-cheetah@maml": _mujoco(
        "half_cheetah:DIRECTIONAL_HALF_CHEETAH_MAML", "directional_half_cheetah_maml", 200
    ),
    "goal-ant@forward-backward": _mujoco("ant:GOAL_ANT_LINE", "goal_ant", 200),
}
"""Environments of other papers' figures: used by name, not families of their own in lists, pictures and benchmarks."""

REFERENCE = "@reference"
"""Suffix of a MuJoCo family's name that asks for Gymnasium's integrator and time step."""


def entry_of(name: str) -> Entry | None:
    """Return the entry of a registered family, or of the family that NAME@reference is a variant of."""
    return VARIANTS.get(name) or REGISTRY.get(name.removesuffix(REFERENCE))


def is_registered(name: str) -> bool:
    """Tell whether a family comes with this package; any other is the user's own code."""
    return entry_of(name) is not None


SESSION = "session:"
"""Prefix of the name of a family that only this process has: made in a notebook, in a script or by a function."""
_session: dict[str, Any] = {}


def name_of(family: Any) -> str:
    """Return the name under which `load` finds a family again: of a name itself, an object or a class.

    An attribute of a module is `module:attribute`, for worker processes too. Other objects are kept for this process.
    """
    if isinstance(family, str):
        return family
    family = _made(family) if isinstance(family, type) else family
    _check_object(family)
    name = str(getattr(family, "name", type(family).__name__))
    if is_registered(name) and load(name) is family:
        return name
    for module, content in list(sys.modules.items()):
        # A script or a notebook is no module for others, nor is multiprocessing's second name for it, __mp_main__.
        if content is not sys.modules["__main__"] and not module.startswith("epg."):
            for attribute, value in list(getattr(content, "__dict__", {}).items()):
                if value is family:
                    return f"{module}:{attribute}"
    _session[SESSION + name] = family
    return SESSION + name


def _made(kind: type) -> Any:
    """Return what a class makes without arguments."""
    try:
        return kind()
    except Exception as error:  # whatever a user's class raises
        raise BadInput(f"the class {kind.__name__} makes no family without arguments: {error}.") from error


def _check_object(family: Any) -> None:
    """Refuse an object that is no family, most often an environment or the function that makes one."""
    from epg.families.base import Family  # here: it imports JAX

    found = type(family).__name__
    sentence = f"a {found} is not a family: give a name or a family (epg.gym_family makes one of environments)."
    require(isinstance(family, Family), sentence)


def check_known(name: str) -> None:
    """Refuse what names no family: neither registered, nor module:attribute, nor of this session."""
    if ":" not in name and not is_registered(name):
        load(name)


WRAP = "wrap it with epg.gym_family"


def is_gymnasium_id(name: str) -> bool:
    """Tell whether a name looks like Hopper-v5 or epg/RandomHopper-v0."""
    return re.fullmatch(r"(\w+/)?[\w.-]+-v\d+", name) is not None


def load(name: str) -> Any:
    """Return the object registered under a name, or at `module:attribute`; `NAME@reference` has stock physics."""
    if name.startswith(SESSION):
        require(name in _session, f"family {name!r} was made in another session: give the family itself.")
        return _session[name]
    if name.endswith(REFERENCE):
        family = load(name.removesuffix(REFERENCE))
        require(
            hasattr(family, "reference"),
            f"family {name!r}: only MuJoCo families have reference physics, leave {REFERENCE} away.",
        )
        return family.reference
    entry = entry_of(name)
    module, _, attribute = (entry.target if entry else name).partition(":")
    if not attribute or not module or module.startswith("."):
        require(not is_gymnasium_id(name), f"{name} is a Gymnasium id: {WRAP}, and name my_module:MY_FAMILY.")
        near, known = did_you_mean(name, REGISTRY), ", ".join(REGISTRY)
        raise BadInput(f"unknown family {name!r}{near}: choose one of {known}, or module:attribute.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise BadInput(f"family {name!r}: no module named {error.name!r} can be imported.") from None
    except AttributeError:
        raise BadInput(f"family {name!r}: module {module!r} has no {attribute!r}.") from None
    except Exception as error:  # whatever a user's module raises when imported
        raise BadInput(f"family {name!r}: importing {module!r} raised {type(error).__name__}: {error}.") from error


def find_family(name: str) -> Any:
    """Return the family of this name, refusing what is not a family."""
    from epg.families.base import Family  # here: it imports JAX

    family = load(name)
    require(
        isinstance(family, Family),
        f"{name!r} is a {type(family).__name__}, not a family: name the module:attribute of one (epg.JaxFamily, ...).",
    )
    return family
