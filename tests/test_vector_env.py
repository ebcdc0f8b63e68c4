"""Vectors of environments: the trajectories, seeds and infos of Gymnasium's own vector of single environments."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from epg.envs.env import environment_id
from epg.envs.vector import FamilyVectorEnv

ROWS, STEPS, LIMIT = 3, 45, 14
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def ours_and_gymnasiums(family: str, mode: AutoresetMode, **options: Any) -> list[gymnasium.vector.VectorEnv]:
    name, limited = environment_id(family), {"max_episode_steps": LIMIT, **options}
    sync = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    made = gymnasium.make_vec(name, ROWS, autoreset_mode=mode, **limited)
    assert type(made) is FamilyVectorEnv
    return [made, gymnasium.make_vec(name, ROWS, **sync, **limited)]


def assert_alike(ours: Any, theirs: Any, within: float) -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_alike(ours[name], theirs[name], within)
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert [it is None for it in ours] == [it is None for it in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one is None or np.allclose(one, other, rtol=0, atol=within)
    else:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=within)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("family", "options", "within"),
    [
        ("random-hopper", {}, 0.0),  # another body, hence another model, in every episode; falls
        ("random-hopper", {"physics": "reference"}, 0.0),  # the solver of each row has a memory of its own
        ("random-cart-pole", {}, 1e-5),  # inside JAX, discrete actions
    ],
)
def test_trajectories_are_those_of_single_environments(
    family: str, options: dict[str, Any], within: float, mode: AutoresetMode, rng: np.random.Generator
) -> None:
    ours, theirs = ours_and_gymnasiums(family, mode, **options)
    assert ours.metadata == theirs.metadata
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert_alike(*(it.reset(seed=5)[0] for it in (ours, theirs)), within)
    ends = np.zeros(2, int)
    for _ in range(STEPS):
        actions = rng.integers(2, size=ROWS) if family == "random-cart-pole" else rng.uniform(-3, 3, (ROWS, 3))
        after, expected = ours.step(actions), theirs.step(actions)
        for one, other in zip(after, expected, strict=True):
            assert_alike(one, other, within)
        ended = after[2] | after[3]
        ends += after[2].sum(), after[3].sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            again = [it.reset(options={"reset_mask": ended.copy()}) for it in (ours, theirs)]
            for one, other in zip(*again, strict=True):
                assert_alike(one, other, within)
    assert (ends > 0).all()  # falls and time limits both occurred


def test_an_environment_whose_tasks_share_a_model(rng: np.random.Generator) -> None:
    """With sensors, and with tasks chosen per environment."""
    ours = gymnasium.make_vec("epg/GoalAnt-v0", 2, task_seed=[3, 8], max_episode_steps=5)
    singles = [gymnasium.make("epg/GoalAnt-v0", task_seed=seed) for seed in (3, 8)]
    seen, infos = ours.reset(seed=[1, None])
    np.testing.assert_array_equal(seen[0], singles[0].reset(seed=1)[0])
    np.testing.assert_array_equal(infos["task"]["bearing"][1], singles[1].reset()[1]["task"]["bearing"])
    for action in rng.uniform(-1, 1, (5, 8)).astype(np.float32):
        after = ours.step(np.stack([action, action]))
        np.testing.assert_array_equal(after[0][0], singles[0].step(action)[0])
    again, infos = ours.step(np.zeros((2, 8)))[::4]
    np.testing.assert_array_equal(again[0], singles[0].reset()[0])
    np.testing.assert_array_equal(infos["task"]["bearing"][1], singles[1].unwrapped.task.bearing)


def test_gymnasiums_wrappers_take_it() -> None:
    vector = RecordEpisodeStatistics(gymnasium.make_vec("epg/PointGoal-v0", ROWS))
    vector.reset(seed=0)
    infos = [vector.step(np.zeros((ROWS, 2), np.float32))[4] for _ in range(33)]
    assert infos[31]["episode"]["l"].tolist() == [32] * ROWS
    assert "episode" not in infos[32]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"task_seed": [1, 2]}, r"2 task seeds were given for 3 environments"),
        ({"task_seed": [1, 2, -3]}, r"task_seed must be a whole number from 0 to 4294967295, not -3"),
        ({"render_mode": "rgb_array"}, r"point-goal cannot be rendered as 'rgb_array'"),
        ({"autoreset_mode": "never"}, r"'never' is not a valid AutoresetMode"),
    ],
)
def test_a_wrong_option_is_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        gymnasium.make_vec("epg/PointGoal-v0", ROWS, **options)


def test_a_wrong_call_is_a_sentence() -> None:
    vector = gymnasium.make_vec("epg/PointGoal-v0", ROWS, autoreset_mode="Disabled", max_episode_steps=1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        vector.step(np.zeros((ROWS, 2)))
    with pytest.raises(ValueError, match="the first reset takes all"):
        vector.reset(options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(ValueError, match="2 seeds were given for 3 environments"):
        vector.reset(seed=[1, 2])
    vector.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions have the shape \(3, 2\), not \(2,\)"):
        vector.step(np.zeros(2))
    vector.step(np.zeros((ROWS, 2)))
    with pytest.raises(gymnasium.error.ResetNeeded):
        vector.step(np.zeros((ROWS, 2)))
