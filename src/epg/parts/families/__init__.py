"""Families: distributions over tasks. A registered family is a tested one (tests/test_families.py iterates)."""

import importlib
from typing import Any

from epg.words.errors import BadInput

REGISTRY = {
    "point-goal": "epg.parts.families.point:POINT_GOAL",
    "point-reach": "epg.parts.families.point:POINT_REACH",
    "random-pendulum": "epg.parts.families.pendulum:RANDOM_PENDULUM",
    "random-cart-pole": "epg.parts.families.cart_pole:RANDOM_CART_POLE",
}
"""Name -> where it is, as text: naming a family loads nothing."""


def load_family(name: str) -> Any:
    """Return the family of this name, or the object at `module:attribute`."""
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
