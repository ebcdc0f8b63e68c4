"""A family from a Gymnasium factory: `make(seed) -> gymnasium.Env`, where the seed is the task.

The environments run in this process, one per lifetime, one after the other: any environment will do, but each step
costs what its Python costs (docs/custom_family.md has the figures).
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jax import Array

from epg.parts.families.base import HostFamily, Reading, Simulator, Step, Task
from epg.words.errors import BadInput
from epg.words.keys import Key
from epg.words.settings import Spaces, require

Factory = Callable[[int], gymnasium.Env]
SEEDS = 2**31 - 1  # tasks there are
HALF = 2**16  # an episode's seed travels as two numbers below it, each exact in single precision


class Seed(NamedTuple):
    """A task: what the factory is given."""

    seed: Array  # int32, not negative


def sample(key: Key) -> Seed:
    """Draw a task: every seed is as likely as any other."""
    return Seed(jax.random.randint(key, (), 0, SEEDS))


@dataclass(frozen=True, kw_only=True)
class GymFamily(HostFamily):
    """A family simulated by Gymnasium environments, one per lifetime. `gym_family` builds it.

    Its simulator goes on to the next episode by itself, so what it says is, in this order: the observation the next
    action follows, the observation that closed the step, reward, terminated, truncated, exploded.
    """

    make: Factory
    """Return the environment of a task. All that makes the task is settled here, `reset` only draws episodes."""
    observed: Box | Discrete
    """The environments' observation space."""
    acted: Box | Discrete
    """The environments' action space."""

    @property
    def width(self) -> int:
        """Return the length of two observations and four numbers."""
        return 2 * self.spaces.observation + 4

    def simulate(self, tasks: Sequence[Task]) -> Simulator:
        """Make one environment per task."""
        return GymSimulator(self, [int(task.seed) for task in tasks])

    def fresh(self, key: Key, task: Task) -> Array:
        """Draw the seed of an episode, as two numbers."""
        return jax.random.randint(key, (2,), 0, HALF).astype(jnp.float32)

    def view(self, raw: Array, task: Task) -> Array:
        """Return the observation that the next action follows."""
        return raw[: self.spaces.observation]

    def steer(self, raw: Array, action: Array, task: Task) -> Array:
        """Return the environment's action, flat, and whether the policy's was finite.

        Of a Box, [-1, 1] is clipped and stretched over a component's bounds; a component without two bounds is taken
        as it is, and clipped at the one it may have.
        """
        if isinstance(self.acted, Discrete):
            choice = action.astype(jnp.float32) + float(self.acted.start)
            return jnp.stack([choice, jnp.ones(())])
        low, high = (bound.astype(np.float32).ravel() for bound in (self.acted.low, self.acted.high))
        with np.errstate(over="ignore"):  # some say "unbounded" by the largest number there is
            bounded = np.isfinite(high - low)
        least, most = np.where(bounded, low, np.float32(-1)), np.where(bounded, high, np.float32(1))
        sound = jnp.all(jnp.isfinite(action))
        units = jnp.where(bounded, jnp.clip(action, -1.0, 1.0), action)
        control = jnp.clip((least + most) / 2 + units * ((most - least) / 2), low, high)
        return jnp.concatenate([jnp.where(sound, control, 0.0), sound[None].astype(jnp.float32)])

    def read(self, step: Step, task: Task) -> Reading:
        """Take the simulator's word."""
        size = self.spaces.observation
        reward, terminated, truncated, exploded = step.after[2 * size :]
        return Reading(
            next_observation=step.after[size : 2 * size],
            reward=reward,
            terminated=terminated > 0,
            truncated=truncated > 0,
            exploded=exploded > 0,
            restart=(terminated > 0) | (truncated > 0),
            raw=step.after,
        )


class GymSimulator:
    """One environment per row, stepped one after the other."""

    def __init__(self, family: GymFamily, seeds: Sequence[int]) -> None:
        self.family, self.seeds = family, seeds
        self.environments: list[gymnasium.Env] = []
        for seed in seeds:
            self.environments.append(_make(family.name, family.make, seed))
        self.ages = np.zeros(len(seeds), np.int64)
        self.now = np.zeros((len(seeds), family.spaces.observation), np.float32)

    def __del__(self) -> None:
        for environment in self.__dict__.get("environments", ()):
            with contextlib.suppress(Exception):  # it is over; nobody is left to be told
                environment.close()

    def repeat(self, times: int) -> "GymSimulator":
        """Make each row's environment `times` times."""
        return GymSimulator(self.family, [seed for seed in self.seeds for _ in range(times)])

    def prepare(self, fresh: np.ndarray) -> np.ndarray:
        """Leave the seeds as they are."""
        return fresh

    def begin(self, fresh: np.ndarray) -> np.ndarray:
        """Reset every environment."""
        for row in range(len(self.seeds)):
            self._reset(row, fresh[row])
        return np.concatenate([self.now, self.now, np.zeros((len(self.seeds), 4), np.float32)], axis=1)

    def restart(self, ended: np.ndarray, fresh: np.ndarray) -> None:
        """Reset the rows of `ended`, except those that have gone on to their next episode by themselves: all."""
        for row in np.flatnonzero(ended & (self.ages > 0)).tolist():
            self._reset(row, fresh[row])

    def advance(self, control: np.ndarray, fresh: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Step the environments, and reset those whose episode is over."""
        size = self.family.spaces.observation
        raw = np.zeros((len(self.seeds), self.family.width), np.float32)
        for row in range(len(self.seeds)) if rows is None else rows.tolist():
            self.ages[row] += 1
            after, *numbers = self._step(row, control[row])
            raw[row, size : 2 * size], raw[row, 2 * size :] = after, numbers
            self.now[row] = after
            if numbers[1] or numbers[2]:
                self._reset(row, fresh[row])
        raw[:, :size] = self.now
        return raw

    def _step(self, row: int, control: np.ndarray) -> tuple[np.ndarray, float, bool, bool, bool]:
        """Return observation, reward, terminated, truncated, exploded. What explodes ends where it stood."""
        stood = self.now[row], 0.0, True, False, True
        if not control[-1]:
            return stood
        try:
            action = to_action(self.family.acted, control[:-1])
            seen, reward, terminated, truncated, _ = self.environments[row].step(action)
            after, gained = to_vector(self.family.observed, seen), np.float32(reward)
        except Exception as error:  # whatever a user's environment raises ends the episode, not the run
            told = f"{self.family.name}: step raised {_said(error)} The episode ends there and counts as exploded."
            warnings.warn(told, RuntimeWarning, stacklevel=1)
            return stood
        if not (np.isfinite(after).all() and np.isfinite(gained)):
            return stood
        truncated = bool(truncated) or self.ages[row] >= self.family.horizon
        return after, float(gained), bool(terminated), truncated and not terminated, False

    def _reset(self, row: int, fresh: np.ndarray) -> None:
        where = f"family {self.family.name!r}: the environment of {_name(self.family.make)}({self.seeds[row]})"
        high, low = (int(number) for number in fresh)
        try:
            seen, _ = self.environments[row].reset(seed=high * HALF + low)
            self.now[row] = to_vector(self.family.observed, seen)
        except Exception as error:  # without a first state there is no episode
            raise BadInput(f"{where} cannot be reset: {_said(error)}") from error
        require(np.isfinite(self.now[row]).all(), f"{where} begins with an observation that is not finite.")
        self.ages[row] = 0


def gym_family(
    name: str, make: Factory, *, horizon: int | None = None, version: int = 1, summary: str = ""
) -> GymFamily:
    """Return the family of the environments `make(seed)`; by default their own time limit is the horizon."""
    environment = _make(name, make, 0)
    observed, acted = environment.observation_space, environment.action_space
    limit = environment.spec.max_episode_steps if environment.spec is not None else None
    environment.close()
    require(
        isinstance(observed, Box | Discrete),
        f"family {name!r}: observations must be a Box or Discrete space, not {type(observed).__name__}: wrap the "
        "environment in gymnasium.wrappers.FlattenObservation.",
    )
    require(
        isinstance(acted, Box | Discrete),
        f"family {name!r}: actions must be a Box or Discrete space, not {type(acted).__name__}.",
    )
    horizon = horizon if horizon is not None else limit
    require(horizon is not None, f"family {name!r}: its environments have no time limit of their own, give a horizon.")
    assert isinstance(observed, Box | Discrete)
    assert isinstance(acted, Box | Discrete)
    assert horizon is not None
    require(horizon > 0, f"family {name!r}: its horizon must be above zero, not {horizon}.")
    return GymFamily(
        name=name,
        version=version,
        summary=summary or f"the environments of {_name(make)}",
        spaces=Spaces(observation=_size(observed), action=_size(acted), discrete=isinstance(acted, Discrete)),
        horizon=horizon,
        sample=sample,
        specification=make.__doc__ or "",
        make=make,
        observed=observed,
        acted=acted,
    )


def to_action(space: Box | Discrete, flat: np.ndarray) -> Any:
    """Give an action the form that its space asks for."""
    if isinstance(space, Discrete):
        return space.dtype.type(flat[0])
    if space.dtype.kind in "iu":
        flat = np.rint(flat)
    return flat.reshape(space.shape).astype(space.dtype)


def to_vector(space: Box | Discrete, seen: Any) -> np.ndarray:
    """Flatten an observation; one of several becomes one-hot."""
    if isinstance(space, Discrete):
        return (np.arange(space.n) == seen - space.start).astype(np.float32)
    with np.errstate(over="ignore"):
        flat = np.asarray(seen).ravel().astype(np.float32)
    if flat.size != np.prod(space.shape):
        raise ValueError(f"an observation has {flat.size} numbers, its space {space}.")
    return flat


def _size(space: Box | Discrete) -> int:
    return int(space.n) if isinstance(space, Discrete) else int(np.prod(space.shape))


def _make(name: str, make: Factory, seed: int) -> gymnasium.Env:
    try:
        environment = make(seed)
    except Exception as error:  # whatever a user's factory raises
        raise BadInput(f"family {name!r}: the factory {_name(make)}({seed}) raised {_said(error)}") from error
    require(
        isinstance(environment, gymnasium.Env),
        f"family {name!r}: the factory {_name(make)} must return a gymnasium.Env, not {type(environment).__name__}.",
    )
    return environment


def _name(make: Factory) -> str:
    return getattr(make, "__name__", type(make).__name__)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}."
