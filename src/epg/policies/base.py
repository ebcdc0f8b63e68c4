"""The contract of a policy: parameters, a carry between steps, and an action distribution per observation."""

from typing import Any, Protocol

from jax import Array

from epg.core.rng import Key
from epg.policies.distributions import Distribution

Params = Any  # policy parameters, theta: a pytree of arrays
Carry = Any  # what a policy remembers from step to step; () for a feed-forward one


class Policy(Protocol):
    """Maps observations to action distributions. Drivers and learners use nothing else of it."""

    def init(self, key: Key) -> Params:
        """Draw fresh parameters."""
        ...

    def carry(self) -> Carry:
        """Return the carry at the start of a lifetime."""
        ...

    def apply(self, params: Params, carry: Carry, observation: Array) -> tuple[Distribution, Carry]:
        """Return the action distribution at a normalized observation, and the carry after it.

        Applied twice to the same carry and observation it returns the same: a driver may choose an action again.
        """
        ...

    def remember(self, carry: Carry, action: Array, reward: Array, done: Array) -> Carry:
        """Return the carry once the action was taken: what it earned, and whether it ended the episode."""
        ...


class FeedForward:
    """A policy that carries nothing from step to step."""

    def carry(self) -> tuple[()]:
        """Return nothing."""
        return ()

    def remember(self, carry: tuple[()], action: Array, reward: Array, done: Array) -> tuple[()]:
        """Remember nothing."""
        return carry


def distribution(policy: Policy, params: Params, observation: Array) -> Distribution:
    """Return the distributions of a feed-forward policy at a batch of observations, [..., O] -> [..., A]."""
    return policy.apply(params, policy.carry(), observation)[0]
