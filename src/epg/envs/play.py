"""Play a trained policy in a Gymnasium environment, one of ours or any that has its spaces."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from epg.core.errors import BadInput, require, require_count, require_seed
from epg.core.rng import Split
from epg.envs.env import environment_id
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import REFERENCE, REGISTRY, find_family
from epg.policies.trained import TrainedPolicy
from epg.simulators.gym import describe, space_size, to_env_action, to_vector
from epg.storage.files import write_atomic
from epg.viz.film import Filming, check_video


@dataclass(frozen=True)
class Episodes:
    """What a policy did in an environment."""

    env: str
    """The environment's id."""
    returns: list[float]
    """Return of each episode."""
    lengths: list[int]
    """Steps of each episode."""
    video: Path | None = None
    """The film of the first one."""


def play(
    policy: TrainedPolicy, env: str | None, episodes: int, seed: int, sample: bool, video: str | Path | None
) -> Episodes:
    """Play episodes; without `env` on the policy's own task. `video` names a GIF or MP4 of the first episode."""
    require_count("episodes", episodes)
    require_seed(seed)
    path = None if video is None else check_video(Path(video))
    name, made = _make(policy, env, "rgb_array" if path else None)
    with closing(made):
        _check_fit(policy, made, name)
        rng = np.random.default_rng(seed) if sample else None
        filming = Filming(1 / (made.metadata.get("render_fps") or 30)) if path else None
        try:
            played = [
                _episode(policy, made, seed + number, rng, filming if number == 0 else None)
                for number in range(episodes)
            ]
        except BadInput:
            raise
        except Exception as error:  # whatever a user's environment raises
            raise BadInput(f"{name} failed: {describe(error)}") from error
        if path and filming:
            write_atomic(path, filming.encode(path.suffix))
    return Episodes(name, [total for total, _ in played], [steps for _, steps in played], path)


def _make(policy: TrainedPolicy, env: str | None, render_mode: str | None) -> tuple[str, gymnasium.Env]:
    options: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}
    family = policy.manifest["family"]
    if env is None:
        known = family.removesuffix(REFERENCE) in REGISTRY  # the variants of families are no environments
        require(known, f"the policy is for {family}: name an environment with --env.")
        env = environment_id(family.removesuffix(REFERENCE))
        options["physics"] = "reference" if family.endswith(REFERENCE) else "fast"
        if "task" in policy.manifest:  # a policy of a lifetime; a fixed one is for every task
            sampler = task_sampler(find_family(family), policy.manifest["seed"], Split.HELD_OUT)
            options["task"] = sampler(jnp.int32(policy.manifest["task"]), jnp.int32(0))[0]
    try:
        return env, gymnasium.make(env, **options)
    except Exception as error:  # an unknown id, a missing library, a mode that cannot be drawn
        raise BadInput(f"the environment {env} cannot be made: {describe(error)}") from error


def _check_fit(policy: TrainedPolicy, env: gymnasium.Env, name: str) -> None:
    """Refuse an environment whose spaces are not the policy's."""
    spaces, seen, acted = policy.manifest["spaces"], env.observation_space, env.action_space
    for space in (seen, acted):
        require(isinstance(space, Box | Discrete), f"{name} has a {type(space).__name__} space: wrap it in a flat Box.")
    kind = {True: "choices", False: "numbers"}
    wanted = f"observes {spaces['observation']} numbers and acts by {spaces['action']} {kind[spaces['discrete']]}"
    has = f"{space_size(seen)} and {space_size(acted)} {kind[isinstance(acted, Discrete)]}"  # type: ignore[arg-type]
    same = f"{spaces['observation']} and {spaces['action']} {kind[spaces['discrete']]}" == has
    require(same, f"the policy {wanted}, {name} has {has}.")


def _episode(
    policy: TrainedPolicy, env: gymnasium.Env, seed: int, rng: np.random.Generator | None, filming: Filming | None
) -> tuple[float, int]:
    observation, total, steps, over = env.reset(seed=seed)[0], 0.0, 0, False
    while not over:
        if filming is not None:
            filming.see(env.render)  # type: ignore[arg-type]
        action = policy.emit(to_vector(env.observation_space, observation), rng)  # type: ignore[arg-type]
        observation, reward, terminated, truncated, _ = env.step(to_env_action(env.action_space, action))  # type: ignore[arg-type]
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    return total, steps
