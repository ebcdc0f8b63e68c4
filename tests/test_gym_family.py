"""A family from a Gymnasium factory: the rows of its simulator are what a plain loop over each environment sees."""

from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

import epg
from epg.families.base import SimStep, StepResult
from epg.families.gym_factory import GymFamily, Seed, gym_family
from epg.simulators.gym import SEED_HALF

TALL = Box(np.array([-2.0, 0.0, -np.inf, 1.0], np.float32), np.array([2.0, 10.0, np.inf, np.inf], np.float32))


class Scripted(gymnasium.Env):
    """Plays what a script says at each age: "end", "cut", "raise", "nan", "inf reward"; remembers what it was given."""

    def __init__(self, script: dict[int, str], acted: gymnasium.Space = TALL) -> None:
        self.script, self.action_space = script, acted
        self.observation_space = Box(-np.inf, np.inf, (2, 1), np.float64)
        self.given: list[Any] = []
        self.resets: list[int | None] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.start = 0, float(self.np_random.uniform())
        self.resets.append(seed)
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.given.append(action)
        self.age += 1
        event = self.script.get(self.age, "")
        if event == "raise":
            raise FloatingPointError("the solver diverged")
        seen = self._see() * (np.nan if event == "nan" else 1.0)
        return seen, np.inf if event == "inf reward" else float(self.age), event == "end", event == "cut", {}

    def _see(self) -> np.ndarray:
        return np.array([[self.start], [float(self.age)]])


def scripted(*scripts: dict[int, str], horizon: int = 6, acted: gymnasium.Space = TALL) -> GymFamily:
    """Return a family whose task number says which script is played."""
    return gym_family("scripted", lambda seed: Scripted(scripts[seed % len(scripts)], acted), horizon=horizon)


def tasks(number: int) -> list[Seed]:
    return [Seed(np.int32(seed)) for seed in range(number)]


def play(family: GymFamily, seeds: list[Seed], actions: np.ndarray) -> tuple[Any, np.ndarray, list[StepResult]]:
    """Do what the host driver does with actions [T, rows, ...]: the simulator, its first readout, and T results."""
    simulator, states = family.simulate(seeds), draw(family, len(actions) + 1, len(seeds))
    readout = first = simulator.begin(states[-1])
    results, task = [], Seed(np.stack([it.seed for it in seeds]))
    to_ctrl, step_result = jax.jit(jax.vmap(family.to_ctrl)), jax.jit(jax.vmap(family.step_result))
    for step, action in enumerate(actions):
        ctrl = np.asarray(to_ctrl(readout, action, task))
        after = simulator.advance(ctrl, states[step])
        assert np.isfinite(after).all()
        sim_step = SimStep(readout, action, after, states[step], np.zeros(len(seeds)))
        result = jax.tree.map(np.asarray, step_result(sim_step, task))
        simulator.reset(result.reset, states[step])
        readout = result.readout
        results.append(result)
    return simulator, first, results


def draw(family: GymFamily, steps: int, rows: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(5), steps * rows)
    states = jax.jit(jax.vmap(lambda key: family.initial_state(key, None)))(keys)
    return np.asarray(states).reshape(steps, rows, -1)


def seed_of(state: np.ndarray) -> int:
    return int(state[0]) * SEED_HALF + int(state[1])


def flat(space: gymnasium.Space, seen: Any) -> np.ndarray:
    return np.asarray(gymnasium.spaces.flatten(space, seen), np.float32).ravel()


def planet(seed: int) -> gymnasium.Env:
    """Return a pendulum on some planet."""
    return gymnasium.make("Pendulum-v1", g=np.random.default_rng(seed).uniform(2.0, 15.0))


ENVIRONMENTS: dict[str, Callable[[int], gymnasium.Env]] = {
    "box to box": planet,
    "box to choice": lambda seed: gymnasium.make("CartPole-v1"),  # ends after some twenty random steps
    "choice to choice": lambda seed: gymnasium.make("FrozenLake-v1"),  # ends after some seven
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_rows_are_what_a_plain_loop_sees(kind: str, rng: np.random.Generator) -> None:
    make, steps, rows = ENVIRONMENTS[kind], 60, 3
    family = gym_family("any", make, horizon=25)
    spaces = family.spaces
    actions = rng.integers(spaces.action, size=(steps, rows)) if spaces.discrete else rng.normal(size=(steps, rows, 1))
    _, first, results = play(family, tasks(rows), actions.astype(np.int32 if spaces.discrete else np.float32))
    states = draw(family, steps + 1, rows)
    for row in range(rows):
        environment, age = make(row), 0
        now, _ = environment.reset(seed=seed_of(states[-1, row]))
        assert np.array_equal(first[row, : spaces.observation], flat(environment.observation_space, now))
        for step in range(steps):
            action = actions[step, row] if spaces.discrete else np.clip(2 * actions[step, row], -2, 2, dtype=np.float32)
            seen, reward, terminated, truncated, _ = environment.step(action)
            age, result = age + 1, jax.tree.map(lambda leaf: leaf[row], results[step])  # noqa: B023
            assert np.array_equal(result.next_observation, flat(environment.observation_space, seen))
            assert result.reward == np.float32(reward)
            assert bool(result.terminated) is bool(terminated)
            assert bool(result.truncated) is bool((truncated or age == 25) and not terminated)
            if terminated or age == 25:
                seen, _ = environment.reset(seed=seed_of(states[step, row]))
                age = 0
            assert np.array_equal(result.readout[: spaces.observation], flat(environment.observation_space, seen))
    ended = np.stack([result.terminated | result.truncated for result in results])
    assert ended.any(axis=0).all()  # every row has seen more than one episode


def test_an_episode_is_reset_once() -> None:
    family = scripted({2: "end"}, {3: "cut"}, {})
    simulator, _, results = play(family, tasks(3), np.zeros((6, 3, 4), np.float32))
    assert [len(environment.resets) for environment in simulator.environments] == [4, 3, 2]
    terminated, truncated = (np.stack([getattr(it, name) for it in results]) for name in ("terminated", "truncated"))
    assert np.flatnonzero(terminated[:, 0]).tolist() == [1, 3, 5]
    assert np.flatnonzero(truncated[:, 1]).tolist() == [2, 5]
    assert np.flatnonzero(truncated[:, 2]).tolist() == [5]  # the family's horizon
    assert terminated.sum() == truncated.sum() == 3
    seeds = [environment.resets for environment in simulator.environments]
    assert len({seed for row in seeds for seed in row}) == 9  # each episode has its own


def test_box_actions_fill_the_bounds() -> None:
    family = scripted({})
    ctrl = family.to_ctrl(None, jnp.array([0.5, 0.0, 7.0, -3.0]), None)
    assert ctrl.tolist() == [1.0, 5.0, 7.0, 1.0, 1.0]  # stretched, stretched, as it is, clipped; sound
    assert family.to_ctrl(None, jnp.array([-9.0, 9.0, -9.0, 9.0]), None).tolist() == [-2.0, 10.0, -9.0, 9.0, 1.0]
    assert family.to_ctrl(None, jnp.array([0.5, jnp.nan, 0.0, 0.0]), None).tolist() == [0.0, 0.0, 0.0, 0.0, 0.0]


def test_whole_numbers_are_rounded_and_choices_may_begin_anywhere() -> None:
    simulator, _, _ = play(scripted({}, acted=Box(0, 9, (2,), np.int64)), tasks(1), np.full((1, 1, 2), 0.1, np.float32))
    assert simulator.environments[0].given[0].tolist() == [5, 5]
    simulator, _, _ = play(scripted({}, acted=Discrete(3, start=-1)), tasks(1), np.array([[0], [2]], np.int32))
    assert simulator.environments[0].given == [-1, 1]


@pytest.mark.parametrize("event", ["raise", "nan", "inf reward"])
def test_a_diverging_step_ends_at_the_state_before(event: str) -> None:
    family, actions = scripted({3: event}, {}), np.zeros((5, 2, 4), np.float32)
    if event == "raise":
        with pytest.warns(RuntimeWarning, match="scripted: step raised FloatingPointError: the solver diverged"):
            simulator, first, results = play(family, tasks(2), actions)
    else:
        simulator, first, results = play(family, tasks(2), actions)
    assert [it.diverged.tolist() for it in results] == [[step == 2, False] for step in range(5)]
    bad = results[2]
    assert (bad.reward[0], bad.terminated[0], bad.truncated[0]) == (0.0, True, False)
    assert bad.next_observation[0].tolist() == [first[0, 0], 2.0]
    assert [it.reward[1] for it in results] == [1.0, 2.0, 3.0, 4.0, 5.0]  # its neighbour notices nothing
    assert [it.reward[0] for it in results[3:]] == [1.0, 2.0]  # and it goes on itself
    assert len(simulator.environments[0].resets) == 2


def test_an_action_that_is_no_number_reaches_no_environment() -> None:
    actions = np.zeros((3, 2, 4), np.float32)
    actions[1, 0, 2] = np.nan
    simulator, _, results = play(scripted({}), tasks(2), actions)
    assert [it.diverged.tolist() for it in results] == [[False, False], [True, False], [False, False]]
    assert [len(environment.given) for environment in simulator.environments] == [2, 3]


def test_only_the_named_rows_move() -> None:
    family = scripted({})
    simulator, states = family.simulate(tasks(3)).repeat(2), draw(family, 1, 6)[0]
    simulator.begin(states)
    ctrl = np.tile(np.array([0, 0, 0, 1, 1], np.float32), (6, 1))
    readout = simulator.advance(ctrl, states, np.array([1, 4]))
    assert [len(environment.given) for environment in simulator.environments] == [0, 1, 0, 0, 1, 0]
    assert readout[[1, 4], 4].tolist() == [1.0, 1.0]  # the reward
    assert simulator.seeds == [0, 0, 1, 1, 2, 2]


def test_tasks_are_whole_numbers_that_differ() -> None:
    drawn = np.asarray(jax.vmap(scripted({}).sample)(jax.random.split(jax.random.key(0), 2000)).seed)
    assert drawn.dtype == np.int32
    assert drawn.min() >= 0
    assert len(set(drawn.tolist())) == 2000
    assert 0.45 < (drawn / 2**31).mean() < 0.55


def fails(seed: int) -> gymnasium.Env:
    raise OSError("no such file")


class Stubborn(Scripted):
    """Cannot be reset."""

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("not today")


def test_what_cannot_be_is_said_in_a_sentence() -> None:
    def odd(observed: gymnasium.Space | None = None, acted: gymnasium.Space = TALL) -> Callable[[int], gymnasium.Env]:
        environment = Scripted({}, acted)
        environment.observation_space = observed or environment.observation_space
        return lambda seed: environment

    for make, sentence in (
        (fails, r"the factory fails\(0\) raised OSError: no such file\."),
        (lambda seed: "an environment", r"must return a gymnasium\.Env, not str\."),
        (odd(observed=Dict({"x": TALL})), r"observations must be a Box or Discrete space, not Dict"),
        (odd(acted=MultiDiscrete([2, 2])), r"actions must be a Box or Discrete space, not MultiDiscrete\."),
        (odd(), r"no time limit of their own, give a horizon\."),
    ):
        with pytest.raises(epg.BadInput, match=sentence):
            gym_family("odd", make)
    with pytest.raises(epg.BadInput, match=r"'odd'.*horizon must be above zero, not 0\."):
        gym_family("odd", odd(), horizon=0)
    stubborn = gym_family("odd", lambda seed: Stubborn({}), horizon=5)
    with pytest.raises(epg.BadInput, match=r"<lambda>\(3\) cannot be reset: RuntimeError: not today\."):
        stubborn.simulate([Seed(np.int32(3))]).begin(np.zeros((1, 2)))


def test_the_time_limit_of_the_environment_is_the_default_horizon() -> None:
    assert gym_family("planets", planet).horizon == 200
    assert gym_family("planets", planet).specification == "Return a pendulum on some planet."
