"""Many environments of a family at once: `gymnasium.make_vec("epg/RandomHopper-v0", num_envs=64)`.

All rows are stepped by one call of the C physics and one compiled program, where Gymnasium's own vector environments
step one after the other. Trajectories, seeds and infos are those of Gymnasium's `SyncVectorEnv` of single environments.
"""

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from epg.envs.env import begin_episodes, choose_task, draw_episode, find_programs, metadata_of, shoot, spaces_of


class FamilyVectorEnv(VectorEnv[np.ndarray, Any, np.ndarray]):
    """`num_envs` environments of a family, each with a task and an episode of its own.

    `task` and `task_seed` choose the task of all environments; a list of seeds, one for each. Without them every
    episode has a new task, which costs a new model where tasks change the body. `autoreset_mode` is Gymnasium's:
    "NextStep", "SameStep" (with `final_obs` and `final_info`) or "Disabled" (`reset(options={"reset_mask": ...})`).
    """

    def __init__(
        self,
        family: str,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        task: Any = None,
        task_seed: int | Sequence[int] | None = None,
        physics: Literal["fast", "reference"] = "fast",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self.programs, self.num_envs, self.render_mode = find_programs(family, physics), num_envs, render_mode
        self._mode, self._limit = AutoresetMode(autoreset_mode), max_episode_steps or np.inf
        self.metadata = {**metadata_of(self.programs), "autoreset_mode": self._mode}
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"{family} cannot be rendered as {render_mode!r}.")
        self.single_observation_space, self.single_action_space = spaces_of(self.programs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._fixed = {name: it for name, it in (("task", task), ("task_seed", task_seed)) if it is not None}
        for asked in self._each(self._fixed):
            choose_task(self.programs, asked)  # refuse a wrong one now
        self._runner, self._rngs = self.programs.runner(num_envs), [seeding.np_random()[0] for _ in range(num_envs)]
        self._ended, self._ages = np.ones(num_envs, bool), np.zeros(num_envs, np.int64)
        self._seen = np.zeros(self.observation_space.shape or (), np.float32)
        self._begun = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every environment, or in those of `options["reset_mask"]`."""
        asked = dict(options or {})
        mask = asked.pop("reset_mask", None)
        mask = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not (mask.any() if self._begun else mask.all()):
            raise ValueError(f"reset_mask must be {self.num_envs} booleans, not all false; the first reset takes all.")
        seeds = [seed + row for row in range(self.num_envs)] if isinstance(seed, int | np.integer) else seed
        if seeds is not None and len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds were given for {self.num_envs} environments.")
        for row, own in enumerate(seeds or ()):
            if mask[row] and own is not None:
                self._rngs[row] = seeding.np_random(own)[0]
        infos: dict[str, Any] = {}
        self._begin(np.flatnonzero(mask), asked, infos)
        return self._seen.copy(), infos

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Apply an action in every environment; after an episode's end, as the autoreset mode says."""
        if not self._begun or (self._mode is AutoresetMode.DISABLED and self._ended.any()):
            raise gymnasium.error.ResetNeeded("reset every environment before its first step, and after its last.")
        actions = np.asarray(actions, np.int32 if self.programs.family.spaces.discrete else np.float32)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions have the shape {self.action_space.shape}, not {actions.shape}.")
        live, infos = ~self._ended, {}
        numbers = np.zeros((self.num_envs, self._seen.shape[1] + 4), np.float32)
        if live.any():
            numbers = self._runner.step(actions, np.flatnonzero(live))
            infos = {"diverged": live & (numbers[:, -1] > 0), "_diverged": live.copy()}
            self._seen = np.where(live[:, None], numbers[:, :-4], self._seen)
        self._ages += live
        reward = np.where(live, numbers[:, -4], 0.0).astype(np.float64)
        terminated = live & (numbers[:, -3] > 0)
        truncated = live & ((numbers[:, -2] > 0) | (self._ages >= self._limit))
        if not live.all():  # next-step mode: these ended a step ago
            self._begin(np.flatnonzero(~live), {}, infos)
        self._ended = terminated | truncated
        if self._mode is AutoresetMode.SAME_STEP and self._ended.any():
            self._begin_at_once(infos)
        return self._seen.copy(), reward, terminated, truncated, infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw every environment, [240, 320, 3] bytes each."""
        if self.render_mode is None or not self._begun:
            return None
        return tuple(shoot(self._runner, self._runner.tasks[row], row) for row in range(self.num_envs))

    def _begin(self, rows: np.ndarray, asked: dict[str, Any], infos: dict[str, Any]) -> None:
        """Begin episodes in these rows and tell their tasks."""
        each = self._each(asked or self._fixed)
        drawn = [draw_episode(self.programs, each[row], self._rngs[row]) for row in rows]
        tasks, seeds = zip(*drawn, strict=True)
        seen = begin_episodes(self._runner, rows.tolist(), tasks, seeds)
        self._seen, self._begun = self._seen.copy(), True
        self._seen[rows], self._ages[rows], self._ended[rows] = seen, 0, False
        for row, task in zip(rows.tolist(), tasks, strict=True):
            infos |= self._add_info(infos, {"task": self.programs.tasks.to_numbers(task)}, row)

    def _begin_at_once(self, infos: dict[str, Any]) -> None:
        """Begin the episodes after those that have just ended, whose last observation and info are kept."""
        rows = np.flatnonzero(self._ended)
        for row in rows.tolist():
            last = {"final_obs": self._seen[row], "final_info": {"diverged": bool(infos["diverged"][row])}}
            infos |= self._add_info(infos, last, row)
        infos["diverged"][rows], infos["_diverged"][rows] = False, False
        if not infos["_diverged"].any():  # nobody tells: Gymnasium leaves the name out
            del infos["diverged"], infos["_diverged"]
        self._begin(rows, {}, infos)

    def _each(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what is asked of each environment."""
        seeds = asked.get("task_seed")
        if not isinstance(seeds, Sequence | np.ndarray):
            return [asked] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} task seeds were given for {self.num_envs} environments.")
        return [{**asked, "task_seed": seed} for seed in seeds]
