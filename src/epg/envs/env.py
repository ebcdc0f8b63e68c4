"""Our families as Gymnasium environments: `gymnasium.make("epg/RandomHopper-v0", task_seed=7)`, for any learner.

`import epg.envs` registers them; `gymnasium.make("epg.envs:epg/RandomHopper-v0")` needs no import before it.
"""

from collections.abc import Mapping, Sequence
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
        self.programs = find_programs(family, physics)
        self.family, self.task, self._runner = self.programs.family, None, self.programs.runner()
        self.observation_space, self.action_space = spaces_of(self.programs)
        self.metadata, self.render_mode = metadata_of(self.programs), render_mode
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"{family} cannot be rendered as {render_mode!r}.")
        self._fixed = {name: it for name, it in (("task", task), ("task_seed", task_seed)) if it is not None}
        choose_task(self.programs, self._fixed)  # refuse a wrong one now

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode of the chosen task, or of a new one."""
        super().reset(seed=seed)
        task, start = draw_episode(self.programs, options or self._fixed, self.np_random)
        observation = begin_episodes(self._runner, [0], [task], [start])[0]
        self.task = task
        return observation, {"task": self.programs.tasks.to_numbers(task)}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Apply an action."""
        if self.task is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step.")
        action = np.asarray(action, np.int32 if self.family.spaces.discrete else np.float32)
        if action.shape != self.action_space.shape:
            raise ValueError(f"an action has the shape {self.action_space.shape}, not {action.shape}.")
        numbers = self._runner.step(action[None])[0]
        reward, terminated, truncated, diverged = numbers[-4:].tolist()
        return numbers[:-4], reward, bool(terminated), bool(truncated), {"diverged": bool(diverged)}

    def render(self) -> Any:
        """Draw the state as it is, [240, 320, 3] bytes."""
        if self.render_mode is None or self.task is None:
            return None
        return shoot(self._runner, self.task)


def choose_task(programs: "Programs", asked: Mapping[str, Any]) -> "Task | None":
    """Return the task that is asked for, None if none is."""
    if not asked:
        return None
    if set(asked) - {"task", "task_seed"} or len(asked) > 1:
        raise ValueError(f"a task is chosen by 'task' or by 'task_seed', not by {' and '.join(map(repr, asked))}.")
    if "task" in asked:
        return programs.tasks.from_numbers(asked["task"])
    seed = asked["task_seed"]
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < SEEDS:
        raise ValueError(f"task_seed must be a whole number from 0 to {SEEDS - 1}, not {seed!r}.")
    return programs.tasks.draw(int(seed))


def draw_episode(programs: "Programs", asked: Mapping[str, Any], rng: np.random.Generator) -> tuple["Task", int]:
    """Return the task that is asked for, or a new one, and the seed of an episode's first state."""
    task = choose_task(programs, asked)
    if task is None:
        task = programs.tasks.draw(int(rng.integers(SEEDS)))
    return task, int(rng.integers(SEEDS))


def begin_episodes(runner: Any, rows: Sequence[int], tasks: Sequence["Task"], seeds: Sequence[int]) -> np.ndarray:
    """Begin episodes in rows of a runner; ValueError says which tasks cannot be simulated."""
    try:
        observations: np.ndarray = runner.begin(rows, tasks, seeds)
    except (ValueError, BadInput) as error:
        reason, name = " ".join(str(error).split()), runner.programs.family.name
        raise ValueError(f"{name} cannot be simulated with this task: {reason}") from None
    return observations


def shoot(runner: Any, task: "Task", row: int = 0) -> np.ndarray:
    """Draw a row of a runner, [240, 320, 3] bytes."""
    from epg.viz.camera import open_camera

    with open_camera(runner.programs.family, task) as camera:
        return camera.shoot(runner.positions(row))


def find_programs(family: str, physics: str) -> "Programs":
    from epg.envs.runner import programs_of

    if physics not in ("fast", "reference"):
        raise ValueError(f"physics must be 'fast' or 'reference', not {physics!r}.")
    try:
        return programs_of(family + (REFERENCE if physics == "reference" else ""))
    except BadInput as error:
        raise ValueError(str(error)) from None


def spaces_of(programs: "Programs") -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    spaces = programs.family.spaces
    seen, unit = np.full(spaces.observation, np.inf, np.float32), np.ones(spaces.action, np.float32)
    acted = gymnasium.spaces.Discrete(spaces.action) if spaces.discrete else gymnasium.spaces.Box(-unit, unit)
    return gymnasium.spaces.Box(-seen, seen), acted


def metadata_of(programs: "Programs") -> dict[str, Any]:
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
            vector_entry_point="epg.envs.vector:FamilyVectorEnv",
            max_episode_steps=entry.time_limit,
            kwargs={"family": family},
        )


register_families()
