"""A policy that plays given actions: the noise *is* the action. For Gymnasium environments and the family checker."""

from typing import Any, NamedTuple

from jax import Array

from epg.core.rng import Key
from epg.policies.base import FeedForward


class GivenAction(NamedTuple):
    """A distribution that ignores the observation."""

    def sample(self, noise: Array) -> Array:
        """Return the given action."""
        return noise


class OpenLoopPolicy(FeedForward):
    """Plays actions that somebody else chose."""

    def init(self, key: Key) -> tuple[()]:
        """Return nothing."""
        return ()

    def apply(self, params: Any, carry: Any, observation: Array) -> tuple[Any, Any]:
        """Return the distribution that samples the given action."""
        return GivenAction(), carry
