"""Gymnasium environments as a simulator: one per row, stepped one after the other in this process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from epg.core.errors import BadInput, require
from epg.core.plain import plain
from epg.simulators.base import GymSource

Factory = Callable[[int], gymnasium.Env]
SEED_HALF = 2**16  # an episode's seed travels as two numbers below it, each exact in single precision


class GymSimulator:
    """One environment per row, stepped one after the other."""

    def __init__(self, family: GymSource, seeds: Sequence[int]) -> None:
        self.family, self.seeds = family, seeds
        self.environments: list[gymnasium.Env] = []
        for seed in seeds:
            self.environments.append(make_env(family.name, family.make, seed))
        self.ages = np.zeros(len(seeds), np.int64)
        self.now = np.zeros((len(seeds), family.spaces.observation), np.float32)

    def __del__(self) -> None:
        for environment in self.__dict__.get("environments", ()):
            with contextlib.suppress(Exception):  # nobody is left to report it to
                environment.close()

    def repeat(self, times: int) -> GymSimulator:
        """Make each row's environment `times` times."""
        return GymSimulator(self.family, [seed for seed in self.seeds for _ in range(times)])

    def prepare(self, states: np.ndarray) -> np.ndarray:
        """Leave the seeds as they are."""
        return states

    def begin(self, states: np.ndarray) -> np.ndarray:
        """Reset every environment."""
        for row in range(len(self.seeds)):
            self._reset(row, states[row])
        return np.concatenate([self.now, self.now, np.zeros((len(self.seeds), 4), np.float32)], axis=1)

    def reset(self, rows: np.ndarray, states: np.ndarray) -> None:
        """Reset the rows of the mask that have not reset by themselves in `advance`."""
        for row in np.flatnonzero(rows & (self.ages > 0)).tolist():
            self._reset(row, states[row])

    def advance(self, ctrl: np.ndarray, reset_states: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Step the environments, and reset those whose episode is over."""
        size = self.family.spaces.observation
        readout = np.zeros((len(self.seeds), self.family.readout_size), np.float32)
        for row in range(len(self.seeds)) if rows is None else rows.tolist():
            self.ages[row] += 1
            after, *numbers = self._step(row, ctrl[row])
            readout[row, size : 2 * size], readout[row, 2 * size :] = after, numbers
            self.now[row] = after
            if numbers[1] or numbers[2]:
                self._reset(row, reset_states[row])
        readout[:, :size] = self.now
        return readout

    def _step(self, row: int, ctrl: np.ndarray) -> tuple[np.ndarray, float, bool, bool, bool]:
        """Return observation, reward, terminated, truncated, diverged. A diverging step ends at the state before."""
        failed = self.now[row], 0.0, True, False, True
        if not ctrl[-1]:
            return failed
        try:
            action = to_action(self.family.action_space, ctrl[:-1])
            seen, reward, terminated, truncated, _ = self.environments[row].step(action)
            after, gained = to_vector(self.family.observation_space, seen), np.float32(reward)
        except Exception as error:  # whatever a user's environment raises ends the episode, not the run
            message = (
                f"{self.family.name}: step raised {describe(error)} The episode ends there and counts as diverged."
            )
            warnings.warn(message, RuntimeWarning, stacklevel=1)
            return failed
        if not (np.isfinite(after).all() and np.isfinite(gained)):
            return failed
        truncated = bool(truncated) or self.ages[row] >= self.family.horizon
        return after, float(gained), bool(terminated), truncated and not terminated, False

    def _reset(self, row: int, state: np.ndarray) -> None:
        where = f"family {self.family.name!r}: the environment of {name_of(self.family.make)}({self.seeds[row]})"
        high, low = (int(number) for number in state)
        try:
            seen, _ = self.environments[row].reset(seed=high * SEED_HALF + low)
            self.now[row] = to_vector(self.family.observation_space, seen)
        except Exception as error:  # without a first state there is no episode
            raise BadInput(f"{where} cannot be reset: {describe(error)}") from error
        require(np.isfinite(self.now[row]).all(), f"{where} begins with an observation that is not finite.")
        self.ages[row] = 0


def to_action(space: Box | Discrete, flat: np.ndarray) -> Any:
    """Convert a flat action to its space's shape and dtype."""
    if isinstance(space, Discrete):
        return space.dtype.type(flat[0])
    if space.dtype.kind in "iu":
        flat = np.rint(flat)
    return flat.reshape(space.shape).astype(space.dtype)


def stretch(space: Box, action: Any, xp: Any = np) -> Any:
    """Turn a policy's action into one of a Box, both flat: [-1, 1] is clipped and stretched over a component's bounds.

    A component without two bounds is taken as it is, and clipped at the one it may have. `xp` is NumPy or jax.numpy.
    """
    low, high = (bound.astype(np.float32).ravel() for bound in (space.low, space.high))
    with np.errstate(over="ignore"):  # some spaces write "unbounded" as the largest float
        bounded = np.isfinite(high - low)
    least, most = np.where(bounded, low, np.float32(-1)), np.where(bounded, high, np.float32(1))
    units = xp.where(bounded, xp.clip(action, -1.0, 1.0), action)
    return xp.clip((least + most) / 2 + units * ((most - least) / 2), low, high)


def to_env_action(space: Box | Discrete, action: Any) -> Any:
    """Turn an action as a policy emits it into one of the environment's space."""
    if isinstance(space, Discrete):
        return space.dtype.type(int(action) + int(space.start))
    return to_action(space, stretch(space, np.asarray(action, np.float32)))


def space_to_dict(space: Box | Discrete) -> dict[str, Any]:
    """Describe a space in JSON values; a bound that is not finite is null."""
    if isinstance(space, Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    bounds = {"low": space.low.ravel().tolist(), "high": space.high.ravel().tolist()}
    return {"shape": list(space.shape), "dtype": str(space.dtype), **plain(bounds)}


def space_from_dict(data: Any) -> Box | Discrete:
    """Rebuild a space from its description."""
    try:
        if "n" in data:
            return Discrete(data["n"], start=data["start"])
        low, high = (
            np.array([end if it is None else it for it in data[name]]).reshape(data["shape"])
            for name, end in (("low", -np.inf), ("high", np.inf))
        )
        return Box(low.astype(data["dtype"]), high.astype(data["dtype"]), dtype=np.dtype(data["dtype"]).type)
    except Exception as error:  # of a file that somebody changed
        raise BadInput(f"this describes no Box or Discrete space: {describe(error)}") from None


def to_vector(space: Box | Discrete, seen: Any) -> np.ndarray:
    """Flatten an observation; a discrete one becomes one-hot."""
    if isinstance(space, Discrete):
        return (np.arange(space.n) == seen - space.start).astype(np.float32)
    with np.errstate(over="ignore"):
        flat = np.asarray(seen).ravel().astype(np.float32)
    if flat.size != np.prod(space.shape):
        raise ValueError(f"an observation has {flat.size} numbers, its space {space}.")
    return flat


def space_size(space: Box | Discrete) -> int:
    """Return the length of a flattened observation or action, or the number of discrete actions."""
    return int(space.n) if isinstance(space, Discrete) else int(np.prod(space.shape))


def make_env(name: str, make: Factory, seed: int) -> gymnasium.Env:
    """Call a user's factory; whatever it raises becomes a sentence."""
    try:
        environment = make(seed)
    except Exception as error:  # whatever a user's factory raises
        raise BadInput(f"family {name!r}: the factory {name_of(make)}({seed}) raised {describe(error)}") from error
    require(
        isinstance(environment, gymnasium.Env),
        f"family {name!r}: the factory {name_of(make)} must return a gymnasium.Env, not {type(environment).__name__}.",
    )
    return environment


def name_of(make: Factory) -> str:
    """Return the name of a factory."""
    return getattr(make, "__name__", type(make).__name__)


def describe(error: Exception) -> str:
    """Return an error as one line: its type and message."""
    return f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}."
