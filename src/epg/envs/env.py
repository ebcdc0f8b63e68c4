"""Our families as Gymnasium environments: `gymnasium.make("epg/RandomHopper-v0", task_seed=7)`, for any learner.

`import epg.envs` registers them; `gymnasium.make("epg.envs:epg/RandomHopper-v0")` needs no import before it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np

from epg.core.errors import BadInput
from epg.families.registry import REFERENCE, REGISTRY

if TYPE_CHECKING:  # JAX comes with the first environment that is made
    from epg.envs.runner import Programs
    from epg.families.base import Task

SEEDS = 2**32


def environment_id(family: str) -> str:
    """Return the id that a family is registered under: `random-hopper`, version 1, is `epg/RandomHopper-v0`."""
    words = "".join(part.capitalize() for part in family.split("-"))
    return f"epg/{words}-v{REGISTRY[family].version - 1}"


class FamilyEnv(gymnasium.Env[np.ndarray, Any]):
    """A family as an environment: every episode is of a task.

    Observation: float32 vector. Action: Box(-1, 1), or Discrete. Rewards, ends and physics are those of lifetimes, as
    `epg tasks NAME` describes them; an action that is not finite, or physics that diverges, ends the episode with
    reward 0 and `info["diverged"]`. The time limit is that of `gymnasium.make`.

    Without `task` (a record or dict of numbers) or `task_seed`, each `reset` draws a new task from the environment's
    own random numbers. `reset(options={"task": ...})` or `{"task_seed": 7}` chooses the task of one episode.
    `reset` returns it as `info["task"]`, which can be given as an option again.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's way)

    def __init__(
        self,
        family: str,
        *,
        task: Any = None,
        task_seed: int | None = None,
        physics: Literal["fast", "reference"] = "fast",
        render_mode: str | None = None,
    ) -> None:
        self.programs = _programs(family, physics)
        self.family, self.task, self._runner = self.programs.family, None, self.programs.runner()
        self.observation_space, self.action_space = _spaces(self.programs)
        self.metadata, self.render_mode = _metadata(self.programs), render_mode
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"{family} cannot be rendered as {render_mode!r}.")
        self._fixed = {name: it for name, it in (("task", task), ("task_seed", task_seed)) if it is not None}
        self._choose(self._fixed)  # refuse a wrong one now

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode of the chosen task, or of a new one."""
        super().reset(seed=seed)
        task = self._choose(options or self._fixed)
        if task is None:
            task = self.programs.tasks.draw(self._seed())
        try:
            observation = self._runner.begin(task, self._seed())
        except (ValueError, BadInput) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{self.family.name} cannot be simulated with this task: {reason}") from None
        self.task = task
        return observation, {"task": self.programs.tasks.to_numbers(task)}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply an action."""
        if self.task is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step.")
        action = np.asarray(action, np.int32 if self.family.spaces.discrete else np.float32)
        if action.shape != self.action_space.shape:
            raise ValueError(f"an action has the shape {self.action_space.shape}, not {action.shape}.")
        numbers = self._runner.step(action)
        reward, terminated, truncated, diverged = numbers[-4:].tolist()
        return numbers[:-4], reward, bool(terminated), bool(truncated), {"diverged": bool(diverged)}

    def render(self) -> Any:
        """Draw the state as it is, [240, 320, 3] bytes."""
        if self.render_mode is None or self.task is None:
            return None
        from epg.viz.camera import open_camera

        runner: Any = self._runner
        with open_camera(runner.programs.family, self.task) as camera:
            return camera.shoot(runner.positions())

    def _seed(self) -> int:
        return int(self.np_random.integers(SEEDS))

    def _choose(self, asked: Mapping[str, Any]) -> "Task | None":
        """Return the task that is asked for, None if none is."""
        if not asked:
            return None
        if set(asked) - {"task", "task_seed"} or len(asked) > 1:
            raise ValueError(f"a task is chosen by 'task' or by 'task_seed', not by {' and '.join(map(repr, asked))}.")
        if "task" in asked:
            return self.programs.tasks.from_numbers(asked["task"])
        seed = asked["task_seed"]
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < SEEDS:
            raise ValueError(f"task_seed must be a whole number from 0 to {SEEDS - 1}, not {seed!r}.")
        return self.programs.tasks.draw(int(seed))


def _programs(family: str, physics: str) -> "Programs":
    from epg.envs.runner import programs_of

    if physics not in ("fast", "reference"):
        raise ValueError(f"physics must be 'fast' or 'reference', not {physics!r}.")
    try:
        return programs_of(family + (REFERENCE if physics == "reference" else ""))
    except BadInput as error:
        raise ValueError(str(error)) from None


def _spaces(programs: "Programs") -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    spaces = programs.family.spaces
    seen, unit = np.full(spaces.observation, np.inf, np.float32), np.ones(spaces.action, np.float32)
    acted = gymnasium.spaces.Discrete(spaces.action) if spaces.discrete else gymnasium.spaces.Box(-unit, unit)
    return gymnasium.spaces.Box(-seen, seen), acted


def _metadata(programs: "Programs") -> dict[str, Any]:
    """Say how an environment can be rendered: that of a MuJoCo family in real time, any other not at all."""
    clock = getattr(programs.family, "fast", None)
    if clock is None:
        return {"render_modes": []}
    return {"render_modes": ["rgb_array"], "render_fps": round(1 / clock.interval)}


def register_families() -> None:
    """Register an environment for every family; nothing is loaded for it."""
    for family, entry in REGISTRY.items():
        gymnasium.register(
            environment_id(family),
            "epg.envs.env:FamilyEnv",
            max_episode_steps=entry.time_limit,
            kwargs={"family": family},
        )


register_families()
