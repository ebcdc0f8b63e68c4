"""Sizes of observation and action. No JAX here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spaces:
    """Sizes of a family's observation, action and task features."""

    observation: int
    """Length of the observation vector."""
    action: int
    """Length of the action vector, or the number of actions when discrete."""
    discrete: bool = False
    """Whether an action is one of `action` choices instead of a vector."""
    features: int = 0
    """Length of the task features that a loss may ask for (0: the family has none)."""
