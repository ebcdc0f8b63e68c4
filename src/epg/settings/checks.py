"""Checks that settings sections share."""

import math

from epg.core.errors import require

LARGEST_SIZE = 2**20  # of an array axis, or a count
LARGEST_ARRAYS = 2**24  # numbers that one lifetime may hold: of its policy, its window, its record


def require_positive(section: object, prefix: str, *names: str) -> None:
    """Refuse a named field of a section that is not finite and above zero, or too large for an array."""
    for name in names:
        value = getattr(section, name)
        require(type(value) is float or value <= LARGEST_SIZE, f"{prefix}.{name} must be at most {LARGEST_SIZE:,}.")
        require(math.isfinite(value) and value > 0, f"{prefix}.{name} must be above zero, not {value}.")


def require_small(name: str, *sizes: int) -> None:
    """Refuse arrays that no machine holds, counted before anything is allocated: the product of their sizes."""
    require(math.prod(sizes) <= LARGEST_ARRAYS, f"{name} asks for arrays of more than {LARGEST_ARRAYS:,} numbers.")
