"""Stable-Baselines3, unmodified, learns on a family's environment, and a loss trains a PyTorch policy. Run by
`make test-sb3`, which installs both."""

import runpy
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import epg
import epg.envs  # registers them, whichever of Gymnasium and epg was imported first

pytestmark = [pytest.mark.sb3, pytest.mark.filterwarnings("default")]  # PyTorch and SB3 have warnings of their own


def test_its_checker_finds_no_fault() -> None:
    from stable_baselines3.common.env_checker import check_env

    check_env(gymnasium.make("epg/RandomHopper-v0"))


def test_its_ppo_trains_on_random_hopper() -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    environment = gymnasium.make("epg/RandomHopper-v0", task_seed=7)
    model = PPO("MlpPolicy", environment, n_steps=512, seed=0, device="cpu", verbose=0)
    untrained, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=8, warn=False)
    model.learn(8192)
    trained, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=8, warn=False)
    assert model.num_timesteps == 8192
    assert all(np.isfinite(it).all() for it in (it.detach().numpy() for it in model.policy.parameters()))
    # Mean of 8 episodes; seeds 0, 1 and 2 gained 103, 107 and 77.
    assert trained > untrained + 40, (untrained, trained)


def test_it_runs_several_at_once() -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    model = PPO("MlpPolicy", make_vec_env("epg/RandomHopper-v0", n_envs=4, seed=0), n_steps=64, device="cpu")
    model.learn(512)
    assert model.num_timesteps == 512


def test_a_loss_trains_a_policy_of_pytorch() -> None:
    """The example: the mean return of the last ten episodes is 8 above that of the first ten, on one task."""
    train = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "torch_policy.py"))["train"]
    _, returns = train(epg.load_loss("point-goal"), gymnasium.make("epg/PointGoal-v0", task_seed=8))
    assert np.mean(returns[-10:]) > np.mean(returns[:10]) + 8, returns
