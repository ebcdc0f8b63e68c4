"""Train Stable-Baselines3's PPO on training tasks of a family and append its returns to docs/ppo_search.jsonl.

    .venv/bin/python tools/sb3_ppo.py random-hopper --steps 8192 --tasks 20      after `make test-sb3` installed it

The tasks are those of tools/tune_ppo.py (Split.TRAIN, seed 1), one fresh policy for each, observations and rewards
normalized, the initial log-std that of our tuned PPO; the return is the mean of three episodes with the
policy's own noise, as in a lifetime's scoring.
"""

import argparse
import itertools
import json
from pathlib import Path

import epg  # noqa: F401 (registers the environments)
from epg.core.runtime import use_single_thread

use_single_thread()

import gymnasium  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

from epg.core.rng import Split  # noqa: E402
from epg.envs.env import environment_id  # noqa: E402
from epg.evolution.task_sampling import task_sampler  # noqa: E402
from epg.families.base import unstack  # noqa: E402
from epg.families.registry import find_family  # noqa: E402
from epg.recipes import preset, recipe_of  # noqa: E402

GRID = {"n_steps": (256, 512), "learning_rate": (3e-4, 1e-3)}


def log_std_of(family: str, steps: int) -> float:
    """Return the initial log-std of our PPO for so many steps."""
    tuned = recipe_of(family).tuned_ppo(steps).log_std
    return preset(family, "laptop").policy.log_std if tuned is None else tuned


def train(family: str, task: object, steps: int, how: dict, seed: int) -> float:
    """Train on one task; return the mean return of three episodes."""

    def make() -> gymnasium.Env:
        return gymnasium.make(environment_id(family), task=task)

    training = VecNormalize(DummyVecEnv([make]), gamma=0.99)
    policy = {"log_std_init": log_std_of(family, steps)}
    model = PPO("MlpPolicy", training, seed=seed, device="cpu", batch_size=64, policy_kwargs=policy, **how)
    model.learn(steps)
    training.training, training.norm_reward = False, False
    return float(evaluate_policy(model, training, n_eval_episodes=3, deterministic=False, warn=False)[0])


def main() -> None:
    """Try every setting on every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family")
    parser.add_argument("--steps", type=int, default=8192)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--first", type=int, help="only so many settings")
    parser.add_argument("--record", type=Path, default=Path("docs/ppo_search.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw = jax.vmap(task_sampler(find_family(arguments.family), 1, Split.TRAIN), (0, None))
    number = arguments.tasks
    tasks, _ = draw(jnp.arange(number), jnp.int32(0))
    for values in itertools.islice(itertools.product(*GRID.values()), arguments.first):
        how = dict(zip(GRID, values, strict=True))
        final = np.array(
            [
                train(arguments.family, task, arguments.steps, how, row)
                for row, task in enumerate(unstack(tasks, number))
            ]
        )
        tried = {
            "family": arguments.family,
            "learner": "stable-baselines3",
            "steps": arguments.steps,
            "log_std": log_std_of(arguments.family, arguments.steps),
            **how,
            "tasks": arguments.tasks,
            "mean": round(float(final.mean()), 3),
            "error": round(float(final.std(ddof=1) / len(final) ** 0.5), 3),
        }
        print(json.dumps(tried), flush=True)
        with arguments.record.open("a") as file:
            file.write(json.dumps(tried) + "\n")


if __name__ == "__main__":
    main()
