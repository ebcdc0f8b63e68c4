"""A family written in JAX: a record of pure functions over one task, batched by whoever calls them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from epg.words.keys import Key
from epg.words.settings import Spaces

Task = Any  # a pytree of numbers
State = Any  # a pytree of arrays


def no_features(task: Task) -> Array:
    """Return the empty vector: the family tells a loss nothing about its task."""
    return jnp.zeros(0)


@dataclass(frozen=True)
class JaxFamily:
    """A family whose tasks are simulated inside the compiled lifetime."""

    name: str
    """The name users type."""
    version: int
    """Raised whenever the same task would behave differently."""
    summary: str
    """One line for `epg tasks`."""
    spaces: Spaces
    """Sizes of observation and action."""
    horizon: int
    """Steps after which an episode is cut by the time limit."""
    sample: Callable[[Key], Task]
    """Draw a task."""
    reset: Callable[[Key, Task], State]
    """Draw the first state of an episode."""
    observe: Callable[[State, Task], Array]
    """Return the observation [O]."""
    step: Callable[[State, Array, Task], tuple[State, Array, Array]]
    """Apply an action as the policy emitted it (clip it here): next state, reward, terminated."""
    features: Callable[[Task], Array] = no_features
    """Return what a loss may know of the task, [F]."""
    orbit: Callable[[Task, Array], Task] | None = None
    """Move a task by a share in [0, 1) along a closed path that leaves the distribution of tasks unchanged.

    Evolution spreads the common tasks of an epoch evenly over it (all directions, both signs), so that a loss
    that merely favours one direction gains nothing.
    """
    specification: str = ""
    """Observation, action, reward, episodes and tasks, for `epg tasks NAME`."""
