"""Policies out of a run: they act as the network says, survive saving, and play in any environment that fits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence
from samples import fresh_loss, small_settings

import epg
from epg.cli import main
from epg.core.errors import BadInput
from epg.evaluation.result import LearningResult
from epg.policies.trained import TrainedPolicy, save_policies
from epg.settings import EvolutionSettings
from epg.simulators.gym import space_from_dict, space_to_dict, to_env_action
from epg.storage.run import Run

TASKS = 3


def pendulum(seed: int) -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1", max_episode_steps=16, g=2.0 + seed % 9)


PENDULUMS = epg.gym_family("pendulums", pendulum)
FAMILIES = "random-pendulum", "random-cart-pole", f"{__name__}:PENDULUMS"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LearningResult]:
    results = {}
    for family in FAMILIES:
        loss = fresh_loss(small_settings(family, 2, EvolutionSettings()))
        results[family] = epg.learn(
            loss, family, tasks=TASKS, lifetimes=1, run=tmp_path_factory.mktemp("learn") / "run"
        )
    return results


def by_hand(policy: TrainedPolicy, observation: np.ndarray) -> np.ndarray:
    """Compute the policy's output in NumPy, in double precision."""
    (first, last), (bias, shift) = jax.tree.map(np.float64, policy.params.mlp)
    return np.tanh((observation - policy.mean) / policy.std @ first + bias) @ last + shift


@pytest.mark.parametrize("family", FAMILIES[:2])
def test_a_policy_acts_as_its_network_says(learned: dict[str, LearningResult], family: str) -> None:
    result = learned[family]
    assert len(result.policies) == len(result.tasks) == len(result.returns) == TASKS
    policy, other = result.policies[0], result.policies[1]
    assert not np.array_equal(policy.mean, other.mean)  # each has the statistics of its own lifetime
    observation = np.linspace(-1, 1, policy.manifest["spaces"]["observation"])
    output, rng = by_hand(policy, observation), np.random.default_rng(7)
    sampled = [policy(observation, rng) for _ in range(2000)]
    if policy.manifest["spaces"]["discrete"]:
        assert policy(observation) == np.argmax(output)
        odds = np.exp(output - output.max())
        assert np.mean(np.array(sampled) == 0) == pytest.approx(odds[0] / odds.sum(), abs=0.05)
    else:
        np.testing.assert_allclose(policy(observation), output, rtol=1e-4, atol=1e-5)
        assert np.mean(sampled) == pytest.approx(output[0], abs=0.1)
        assert np.std(sampled) == pytest.approx(np.exp(policy.params.log_std[0]), rel=0.1)
    batch = np.stack([observation, 2 * observation])
    np.testing.assert_allclose(policy(batch)[0], policy(observation), rtol=1e-6)
    with pytest.raises(BadInput, match=r"the policy observes \d numbers"):
        policy(np.zeros(9))


def test_the_policy_of_a_gymnasium_family_acts_in_its_environments_own_space(
    learned: dict[str, LearningResult],
) -> None:
    result = learned[FAMILIES[2]]
    policy, env = result.policies[0], pendulum(int(result.tasks[0].seed))
    observation, _ = env.reset(seed=0)
    action = policy(observation)
    assert env.action_space.contains(action)
    np.testing.assert_allclose(action, 2 * np.clip(by_hand(policy, observation), -1, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_policy_is_the_same(learned: dict[str, LearningResult], family: str, tmp_path: Path) -> None:
    result = learned[family]
    observation = np.linspace(-1, 1, result.policies[0].manifest["spaces"]["observation"])
    for task, policy in enumerate(result.policies):
        one = epg.load_policy(policy.save(tmp_path / str(task)))
        from_run = epg.load_policy(result.run, task)
        for loaded in (one, from_run):
            np.testing.assert_array_equal(loaded(observation), policy(observation))
            assert loaded.manifest["task"] == task
    with pytest.raises(BadInput, match="holds the policies of 3 tasks, counted from 0: not 3"):
        epg.load_policy(result.run, TASKS)


def test_the_result_is_what_its_run_holds(learned: dict[str, LearningResult]) -> None:
    result = learned["random-pendulum"]
    assert json.loads((result.run / "results.json").read_text()) == result.table
    assert Run.open(result.run).config["kind"] == "learn"
    assert set(result.curves) == {"epg/final", "epg/episode_return", "epg/kl"}
    np.testing.assert_array_equal(result.curves["epg/final"], result.returns)
    assert result.to_dict() == {"run": str(result.run), **result.table}


def test_damage_is_refused(learned: dict[str, LearningResult], tmp_path: Path) -> None:
    policy = learned["random-pendulum"].policies[0]
    other = learned["random-cart-pole"].policies[0]
    broken = {
        "its tensors are not those of its architecture": TrainedPolicy(
            policy.policy, other.params, policy.mean, policy.std, policy.manifest
        ),
        "obs_std must be above zero": TrainedPolicy(
            policy.policy, policy.params, policy.mean, 0 * policy.std, policy.manifest
        ),
        "its training diverged: obs_mean holds": TrainedPolicy(
            policy.policy, policy.params, np.nan * policy.mean, policy.std, policy.manifest
        ),
        "is of an unknown type: 'tree'": TrainedPolicy(
            policy.policy, policy.params, policy.mean, policy.std, {**policy.manifest, "policy": {"type": "tree"}}
        ),
    }
    for number, (sentence, it) in enumerate(broken.items()):
        save_policies(tmp_path / str(number), [it])
        with pytest.raises(BadInput, match=sentence):
            epg.load_policy(tmp_path / str(number))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": None}, "is damaged: it lacks 'seed'"),
        ({"seed": "x"}, "'seed' must be int, not str"),
        ({"seed": -1}, "'seed' must not be negative"),
        ({"baseline": "maml"}, "is damaged: it lacks 'options'"),
        ({"baseline": ["maml"], "options": {}}, "'baseline' must be str, not list"),
        ({"baseline": "fixed", "options": []}, "'options' must be dict, not list"),
        ({"family": "goal-ant@forward-backward"}, "the policy is for goal-ant@forward-backward: name an environment"),
    ],
)
def test_what_somebody_wrote_into_a_manifest_is_a_sentence(
    learned: dict[str, LearningResult], changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    policy = learned["random-pendulum"].policies[0]
    manifest = {name: it for name, it in (policy.manifest | changes).items() if it is not None}
    save_policies(tmp_path, [replace(policy, manifest=manifest)])
    with pytest.raises(BadInput, match=sentence):
        epg.act(tmp_path, episodes=1)


def test_playing_is_an_ordinary_loop(learned: dict[str, LearningResult], capsys: pytest.CaptureFixture[str]) -> None:
    """random-pendulum's policies also fit Gymnasium's Pendulum-v1: the return is that of a loop written by hand."""
    run, env = learned["random-pendulum"].run, gymnasium.make("Pendulum-v1")
    policy, totals = epg.load_policy(run, 1), []
    for seed in (3, 4):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            observation, reward, _, over, _ = env.step(2 * np.clip(policy(observation), -1, 1))
            total += float(reward)
        totals.append(total)
    played = epg.act(run, "Pendulum-v1", task=1, episodes=2, seed=3)
    np.testing.assert_allclose(played.returns, totals, rtol=1e-6)
    assert played.lengths == [200, 200]
    main(["act", str(run), "--env", "Pendulum-v1", "--task", "1", "--episodes", "2", "--seed", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["returns"] == played.returns


def test_without_an_environment_it_plays_its_own_task(learned: dict[str, LearningResult]) -> None:
    result = learned["random-cart-pole"]
    env = gymnasium.make("epg/RandomCartPole-v0", task=result.tasks[2])
    observation, _ = env.reset(seed=5)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(result.policies[2](observation))
        total, over = total + float(reward), terminated or truncated
    assert epg.act(result.policies[2], episodes=1, seed=5).returns == [pytest.approx(total)]
    assert len(epg.act(result.run, episodes=2, sample=True).returns) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"env": "CartPole-v1"},
            "the policy observes 3 numbers and acts by 1 numbers, CartPole-v1 has 4 and 2 choices",
        ),
        ({"env": "Blackjack-v1"}, "Blackjack-v1 has a Tuple space"),
        ({"env": "Pendulumm-v1"}, "the environment Pendulumm-v1 cannot be made: NameNotFound: .*Pendulum"),
        ({"episodes": 0}, "episodes must be above zero"),
        ({"video": "x.avi"}, r"a video is a GIF or an MP4: name it x\.gif"),
        ({"video": "nowhere/x.gif"}, "there is no directory nowhere"),
        ({"seed": -1, "sample": True}, "seed must lie in .*, not -1"),
        ({"video": "x.gif"}, "cannot be rendered as 'rgb_array'"),
    ],
)
def test_what_cannot_be_played_is_refused(
    learned: dict[str, LearningResult], options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        epg.act(learned["random-pendulum"].run, **options)  # type: ignore[arg-type]


class Painted(gymnasium.Env):
    """Has a pendulum's spaces, lasts a thousand steps at fifty a second, and counts its pictures."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's way)
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
    drawn = 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, False, self.steps == 1000, {}

    def render(self):
        type(self).drawn += 1
        return np.full((24, 32, 3), self.steps % 256, np.uint8)


def test_a_film_of_a_long_episode_is_thinned_and_as_fast_as_it_happened(
    learned: dict[str, LearningResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Painted-v0", Painted, disable_env_checker=True)
    monkeypatch.setitem(gymnasium.registry, "Painted-v0", spec)
    command = ["act", str(learned["random-pendulum"].run), "--env", "Painted-v0", "--episodes", "2", "--json"]
    main([*command, "--video", str(tmp_path / "film.gif")])
    with Image.open(tmp_path / "film.gif") as film:
        assert 100 < film.n_frames <= 220
        seconds = sum(frame.info["duration"] for frame in ImageSequence.Iterator(film)) / 1000
    assert seconds == pytest.approx(1000 / 50, rel=0.1)  # and the last frame stays for a moment
    assert Painted.drawn <= 500  # of 1000 steps: the others were never drawn, nor kept in memory


def test_a_family_of_ones_own_needs_its_environment_named(learned: dict[str, LearningResult]) -> None:
    with pytest.raises(BadInput, match="name an environment with --env"):
        epg.act(learned[FAMILIES[2]].run)
    assert len(epg.act(learned[FAMILIES[2]].run, "Pendulum-v1", episodes=1).returns) == 1


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(4, start=2),
        gymnasium.spaces.Box(np.array([-np.inf, -2.0], np.float32), np.array([3.0, np.inf], np.float32)),
        gymnasium.spaces.Box(0, 255, (2, 3), np.uint8),
    ],
)
def test_a_space_comes_back_from_json(space: gymnasium.Space) -> None:
    again = space_from_dict(json.loads(json.dumps(space_to_dict(space))))
    assert again == space
    emitted = 1 if isinstance(space, gymnasium.spaces.Discrete) else np.full(space.shape, 0.5).ravel()
    assert space.contains(to_env_action(again, emitted))


def test_what_is_no_space_is_refused() -> None:
    with pytest.raises(BadInput, match="describes no Box or Discrete space"):
        space_from_dict({"shape": [2], "low": [0], "high": [1], "dtype": "float32"})
