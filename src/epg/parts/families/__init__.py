"""Families: distributions over tasks. A registered family is a tested one (tests/test_families.py iterates)."""

import importlib
from typing import Any

from epg.words.errors import BadInput

REGISTRY = {
    "point-goal": "epg.parts.families.point:POINT_GOAL",
    "point-reach": "epg.parts.families.point:POINT_REACH",
    "random-pendulum": "epg.parts.families.pendulum:RANDOM_PENDULUM",
    "random-cart-pole": "epg.parts.families.cart_pole:RANDOM_CART_POLE",
    "random-hopper": "epg.parts.families.hopper:RANDOM_HOPPER",
    "random-walker": "epg.parts.families.walker:RANDOM_WALKER",
    "random-reacher": "epg.parts.families.reacher:RANDOM_REACHER",
    "directional-hopper": "epg.parts.families.hopper:DIRECTIONAL_HOPPER",
    "directional-half-cheetah": "epg.parts.families.half_cheetah:DIRECTIONAL_HALF_CHEETAH",
    "goal-ant": "epg.parts.families.ant:GOAL_ANT",
    "goal-ant-right": "epg.parts.families.ant:GOAL_ANT_RIGHT",
    "goal-ant-left": "epg.parts.families.ant:GOAL_ANT_LEFT",
    "goal-ant-no-reset": "epg.parts.families.ant:GOAL_ANT_ENDLESS",
    "fetch-reach": "epg.parts.families.fetch:FETCH_REACH",
}
"""Name -> where it is, as text: naming a family loads nothing."""


REFERENCE = "@reference"
"""Ending of a MuJoCo family's name that asks for the stock integrator and time step."""


def is_registered(name: str) -> bool:
    """Tell whether a family comes with this package; any other is code of somebody's own."""
    return name.removesuffix(REFERENCE) in REGISTRY


def load_family(name: str) -> Any:
    """Return the family of this name, or the object at `module:attribute`; `NAME@reference` has stock physics."""
    if name.endswith(REFERENCE):
        family = load_family(name.removesuffix(REFERENCE))
        if not hasattr(family, "reference"):
            raise BadInput(f"family {name!r}: only MuJoCo families have reference physics, leave {REFERENCE} away.")
        return family.reference
    place = REGISTRY.get(name, name)
    module, _, attribute = place.partition(":")
    if not attribute or not module or module.startswith("."):
        raise BadInput(f"unknown family {name!r}: choose one of {', '.join(REGISTRY)}, or module:attribute.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise BadInput(f"family {name!r}: no module named {error.name!r} can be imported.") from None
    except AttributeError:
        raise BadInput(f"family {name!r}: module {module!r} has no {attribute!r}.") from None
    except Exception as error:  # whatever a user's module raises when imported
        raise BadInput(f"family {name!r}: importing {module!r} raised {type(error).__name__}: {error}.") from error
