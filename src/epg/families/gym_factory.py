"""A family from a Gymnasium factory: `make(seed) -> gymnasium.Env`, where the seed is the task.

The environments run in this process, one per lifetime, one after the other: any environment will do, but each step
costs what its Python costs (docs/custom_family.md has the figures).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium.spaces import Box, Discrete
from jax import Array

from epg.core.errors import require, require_count
from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.families.base import HostFamily, SimStep, StepResult, Task
from epg.simulators.base import Simulator
from epg.simulators.gym import SEED_HALF, Factory, GymSimulator, make_env, name_of, space_size, stretch

SEEDS = 2**31 - 1  # number of tasks


class Seed(NamedTuple):
    """A task: what the factory is given."""

    seed: Array  # int32, not negative


def sample(key: Key) -> Seed:
    """Draw a task: every seed is as likely as any other."""
    return Seed(jax.random.randint(key, (), 0, SEEDS))


@dataclass(frozen=True, kw_only=True)
class GymFamily(HostFamily):
    """A family simulated by Gymnasium environments, one per lifetime. `gym_family` builds it.

    Its simulator resets by itself, so its readout is: the observation that the next action follows, the observation
    that closed the step, reward, terminated, truncated, diverged.
    """

    make: Factory
    """Return the environment of a task. Everything about the task is decided here, `reset` only draws episodes."""
    observation_space: Box | Discrete
    """The environments' observation space."""
    action_space: Box | Discrete
    """The environments' action space."""

    @property
    def readout_size(self) -> int:
        """Return the length of two observations and four numbers."""
        return 2 * self.spaces.observation + 4

    def simulate(self, tasks: Sequence[Task]) -> Simulator:
        """Make one environment per task."""
        return GymSimulator(self, [int(task.seed) for task in tasks])

    def initial_state(self, key: Key, task: Task) -> Array:
        """Draw the seed of an episode, as two numbers."""
        return episode_seed(key).astype(jnp.float32)

    def observation(self, readout: Array, task: Task) -> Array:
        """Return the observation that the next action follows."""
        return readout[: self.spaces.observation]

    def to_ctrl(self, readout: Array, action: Array, task: Task) -> Array:
        """Return the environment's action, flat, and whether the policy's was finite."""
        if isinstance(self.action_space, Discrete):
            choice = action.astype(jnp.float32) + float(self.action_space.start)
            return jnp.stack([choice, jnp.ones(())])
        finite, ctrl = jnp.all(jnp.isfinite(action)), stretch(self.action_space, action, jnp)
        return jnp.concatenate([jnp.where(finite, ctrl, 0.0), finite[None].astype(jnp.float32)])

    def step_result(self, step: SimStep, task: Task) -> StepResult:
        """Read the result from the simulator's readout."""
        size = self.spaces.observation
        reward, terminated, truncated, diverged = step.after[2 * size :]
        return StepResult(
            next_observation=step.after[size : 2 * size],
            reward=reward,
            terminated=terminated > 0,
            truncated=truncated > 0,
            diverged=diverged > 0,
            reset=(terminated > 0) | (truncated > 0),
            readout=step.after,
        )


def episode_seed(key: Key) -> Array:
    """Draw the upper and the lower half of an episode's seed."""
    return jax.random.randint(key, (2,), 0, SEED_HALF)


def flat_spaces(name: str, observed: Any, acted: Any, features: int = 0) -> Spaces:
    """Return the sizes of an environment's spaces, refusing those that have none."""
    require(
        isinstance(observed, Box | Discrete),
        f"{name}: observations must be a Box or Discrete space, not {type(observed).__name__}: wrap the "
        "environment in gymnasium.wrappers.FlattenObservation.",
    )
    require(
        isinstance(acted, Box | Discrete),
        f"{name}: actions must be a Box or Discrete space, not {type(acted).__name__}.",
    )
    return Spaces(space_size(observed), space_size(acted), isinstance(acted, Discrete), features)


def gym_family(
    name: str, make: Factory, *, horizon: int | None = None, version: int = 1, summary: str = ""
) -> GymFamily:
    """Return the family of the environments `make(seed)`; by default their own time limit is the horizon."""
    environment = make_env(name, make, 0)
    observed, acted = environment.observation_space, environment.action_space
    limit = environment.spec.max_episode_steps if environment.spec is not None else None
    environment.close()
    spaces = flat_spaces(f"family {name!r}", observed, acted)
    horizon = horizon if horizon is not None else limit
    require(horizon is not None, f"family {name!r}: its environments have no time limit of their own, give a horizon.")
    assert isinstance(observed, Box | Discrete)
    assert isinstance(acted, Box | Discrete)
    assert horizon is not None
    require_count(f"family {name!r}: its horizon", horizon)
    return GymFamily(
        name=name,
        version=version,
        summary=summary or f"the environments of {name_of(make)}",
        spaces=spaces,
        horizon=horizon,
        sample=sample,
        specification=make.__doc__ or "",
        make=make,
        observation_space=observed,
        action_space=acted,
    )
