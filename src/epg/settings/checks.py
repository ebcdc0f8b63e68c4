"""Checks that settings sections share."""

import math

from epg.core.errors import require

LARGEST_SIZE = 2**31 - 1  # of an array axis, or a count


def require_positive(section: object, prefix: str, *names: str) -> None:
    """Refuse a named field of a section that is not finite and above zero, or too large for an array."""
    for name in names:
        value = getattr(section, name)
        require(math.isfinite(value) and value > 0, f"{prefix}.{name} must be above zero, not {value}.")
        require(type(value) is float or value <= LARGEST_SIZE, f"{prefix}.{name} is too large: {value}.")
