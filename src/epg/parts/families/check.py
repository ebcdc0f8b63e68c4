"""The public checker of families: `epg check my_module:my_family`. Each check names what to change.

A question is asked of a trial: a family together with how to try it out, whichever way it is simulated.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.parts.families.base import HostFamily, JaxFamily, Simulator, Step, Task
from epg.parts.policy import draw_noise
from epg.words.keys import Key
from epg.words.runtime import COMPILER
from epg.words.settings import Spaces

STEPS, BRIEF = 200, 10
"""Length of a rollout, and of one whose rounding errors must not grow."""
ROWS = 3
"""Lifetimes in a rollout. All rollouts are alike in shape: compiling is most of the time a check takes."""

_compile = partial(jax.jit, compiler_options=COMPILER)


@dataclass(frozen=True)
class Check:
    """One question asked of a family."""

    name: str
    """What is asked."""
    problem: str | None
    """What to change, or None if all is well."""

    @property
    def passed(self) -> bool:
        """Whether there is no problem."""
        return self.problem is None


def check_family(family: Any) -> list[Check]:
    """Ask every question; those that cannot be asked because an earlier one failed are left out."""
    checks = []
    trial = HostTrial(family) if isinstance(family, HostFamily) else JaxTrial(family)
    for name, question in questions_of(family).items():
        try:
            problem = question(trial)
        except Exception as error:  # whatever a user's function raises is that check's answer
            problem = f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        checks.append(Check(name, problem))
        if problem and name in FATAL:
            break
    return checks


# --- trials -------------------------------------------------------------------------------------------------------


class Trace(NamedTuple):
    """What S rows did in T steps."""

    observation: np.ndarray  # [T, S, O] before any restart
    reward: np.ndarray  # [T, S]
    terminated: np.ndarray  # [T, S]
    exploded: np.ndarray  # [T, S]
    said: np.ndarray  # [T, S, W] by the simulator, if there is one

    def row(self, index: int) -> "Trace":
        """Return one row, as the only one."""
        return Trace(*(part[:, index : index + 1] for part in self))

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        return all(np.isfinite(part).all() for part in self)

    def equals(self, other: "Trace") -> bool:
        """Whether every bit is the same; one NaN is as good as another."""
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self, other, strict=True))

    def resembles(self, other: "Trace") -> bool:
        """Whether what a learner sees of them differs by rounding errors only."""
        return _close(self[:4], other[:4])


class Rows(NamedTuple):
    """What a rollout begins with."""

    tasks: Task  # leaves [S, ...]
    keys: Key  # [S] decide where episodes begin
    actions: Array  # [T, S, A], or [T, S] whole numbers

    def row(self, index: int) -> "Rows":
        """Return one row, as the only one."""
        tasks = jax.tree.map(lambda leaf: leaf[index : index + 1], self.tasks)
        return Rows(tasks, self.keys[index : index + 1], self.actions[:, index : index + 1])


Pieces = Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]
"""The pure functions of a family, each with arguments to try it on."""


@dataclass(frozen=True)
class JaxTrial:
    """A family simulated inside JAX."""

    family: JaxFamily

    def pieces(self) -> Pieces:
        """Return reset, observe and step."""
        (task, key, action), family = _single(self.family), self.family
        state = family.reset(key, task)
        return {
            "reset": (family.reset, (key, task)),
            "observe": (family.observe, (state, task)),
            "step": (family.step, (state, action, task)),
        }

    def shapes(self) -> str | None:
        """Say what is not as declared."""
        (task, key, action), family = _single(self.family), self.family
        state = family.reset(key, task)
        after, reward, terminated = family.step(state, action, task)
        if jax.tree.map(_kind, after) != jax.tree.map(_kind, state):
            return "step must return a state of the same structure, shapes and dtypes as reset"
        return _unlike(
            {
                "observe": (family.observe(state, task), jnp.float32, (family.spaces.observation,)),
                "step's reward": (reward, jnp.float32, ()),
                "step's terminated": (terminated, jnp.bool_, ()),
            }
        )

    def rollout(self, rows: Rows) -> Trace:
        """Simulate all rows; functions are traced anew each time, so that impure ones show."""
        family = self.family

        def one(task: Task, key: Key, actions: Array) -> tuple[Array, Array, Array]:
            first = family.reset(key, task)

            def body(state: Any, action: Array) -> tuple[Any, tuple[Array, Array, Array]]:
                after, reward, terminated = family.step(state, action, task)
                following = jax.tree.map(lambda a, b: jnp.where(terminated, a, b), first, after)
                return following, (family.observe(after, task), reward, terminated)

            return jax.lax.scan(body, first, actions)[1]

        seen = _compile(jax.vmap(one, (0, 0, 1), 1))(*rows)
        observation, reward, terminated = (np.asarray(part) for part in seen)
        return Trace(observation, reward, terminated, np.zeros_like(terminated), np.zeros((*reward.shape, 0)))


@dataclass(frozen=True)
class HostTrial:
    """A family simulated outside JAX."""

    family: HostFamily

    @cached_property
    def _fresh(self) -> Callable[..., Array]:
        def many(key: Key, task: Task, number: int) -> Array:
            return jax.vmap(self.family.fresh, (0, None))(jax.random.split(key, number), task)

        def all_rows(keys: Key, tasks: Task, number: int) -> Array:
            return jax.vmap(partial(many, number=number), (0, 0), 1)(keys, tasks)

        return _compile(all_rows, static_argnames="number")

    @cached_property
    def _steer(self) -> Callable[..., Array]:
        return _compile(jax.vmap(self.family.steer))

    @cached_property
    def _read(self) -> Callable[..., Any]:
        return _compile(jax.vmap(self.family.read))

    def steer(self, raw: np.ndarray, action: Array | np.ndarray, tasks: Task) -> np.ndarray:
        """Return the controls of all rows."""
        return np.asarray(self._steer(raw, action, tasks))

    def _one_step(self) -> tuple[Task, Key, Step, np.ndarray]:
        (task, key, action), family = _single(self.family), self.family
        simulator = family.simulate([task])
        fresh = simulator.prepare(np.asarray(family.fresh(key, task))[None])
        before = simulator.begin(fresh)
        control = np.asarray(family.steer(jnp.asarray(before[0]), action, task))
        after = simulator.advance(control[None], fresh)
        now, then, new = (jnp.asarray(it[0]) for it in (before, after, fresh))
        return task, key, Step(now, action, then, new, jnp.ones(())), np.stack([before, after])

    def pieces(self) -> Pieces:
        """Return fresh, view, steer and read."""
        (task, key, step, _), family = self._one_step(), self.family
        return {
            "fresh": (family.fresh, (key, task)),
            "view": (family.view, (step.before, task)),
            "steer": (family.steer, (step.before, step.action, task)),
            "read": (family.read, (step, task)),
        }

    def shapes(self) -> str | None:
        """Say what is not as declared."""
        (task, _, step, said), family = self._one_step(), self.family
        control, reading = family.steer(step.before, step.action, task), family.read(step, task)
        if jnp.ndim(control) != 1:
            return f"steer must give a vector, not {_named(control)}"
        seen = jnp.float32, (family.spaces.observation,)
        return _unlike(
            {
                "what the simulator says": (said, jnp.float32, (2, 1, family.width)),
                "view": (family.view(step.before, task), *seen),
                "read's next_observation": (reading.next_observation, *seen),
                "read's reward": (reading.reward, jnp.float32, ()),
                "read's raw": (reading.raw, jnp.float32, (family.width,)),
                **{
                    f"read's {name}": (getattr(reading, name), jnp.bool_, ())
                    for name in ("terminated", "truncated", "exploded", "restart")
                },
            }
        )

    def simulator(self, tasks: Task, rows: int) -> Simulator:
        """Build a simulator of a batch of tasks."""
        plain = jax.tree.map(np.asarray, tasks)
        return self.family.simulate([jax.tree.map(lambda leaf: leaf[row], plain) for row in range(rows)])  # noqa: B023

    def draw(self, rows: Rows, number: int) -> np.ndarray:
        """Draw where episodes begin, [number, S, F], without what only a simulator knows."""
        return np.asarray(self._fresh(rows.keys, rows.tasks, number=number))

    def rollout(self, rows: Rows) -> Trace:
        """Simulate all rows, as the host driver does."""
        steps, number = rows.actions.shape[:2]
        simulator = self.simulator(rows.tasks, number)
        fresh = simulator.prepare(self.draw(rows, steps + 1))
        raw, age, seen = simulator.begin(fresh[0]), np.zeros(number, np.float32), []
        for action, new in zip(np.asarray(rows.actions), fresh[1:], strict=True):
            after = simulator.advance(self.steer(raw, action, rows.tasks), new)
            age = age + np.float32(1.0)
            step: Any = (raw, action, after, new, age)
            reading = jax.tree.map(np.asarray, self._read(Step(*step), rows.tasks))
            seen.append((reading.next_observation, reading.reward, reading.terminated, reading.exploded, after.copy()))
            raw, age = reading.raw, np.where(reading.terminated | reading.truncated, np.float32(0.0), age)
            if reading.restart.any():
                simulator.restart(reading.restart, new)
        return Trace(*(np.stack(part) for part in zip(*seen, strict=True)))


Trial = JaxTrial | HostTrial


def _single(family: Any) -> tuple[Task, Key, Array]:
    rows = _rows(family, steps=BRIEF)
    return family.sample(jax.random.key(0)), rows.keys[0], rows.actions[0, 0]


def _rows(family: Any, seed: int = 0, steps: int = STEPS, number: int = ROWS) -> Rows:
    """Draw tasks, episodes and standard normal (or uniform) actions."""

    @partial(_compile, static_argnames=("steps", "number"))
    def draw(seed: Array, steps: int, number: int) -> Rows:
        task, reset, act = (jax.random.fold_in(jax.random.key(seed), stream) for stream in range(3))
        noise = draw_noise(act, family.spaces, steps * number).reshape(steps, number, -1)
        actions = jnp.argmax(noise, axis=-1) if family.spaces.discrete else noise
        return Rows(jax.vmap(family.sample)(jax.random.split(task, number)), jax.random.split(reset, number), actions)

    return draw(jnp.asarray(seed, jnp.uint32), steps, number)


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any]:
    return jnp.shape(leaf), jnp.result_type(leaf)


def _named(value: Any) -> str:
    return f"{jnp.result_type(value)}{list(jnp.shape(value))}" if hasattr(value, "dtype") else type(value).__name__


def _unlike(expected: Mapping[str, tuple[Any, Any, tuple[int, ...]]]) -> str | None:
    for what, (value, dtype, shape) in expected.items():
        if not hasattr(value, "dtype") or value.dtype != dtype or value.shape != shape:
            return f"{what} must be {jnp.dtype(dtype).name}{list(shape)}, not {_named(value)}"
    return None


def _close(one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True) for a, b in pairs)


# --- questions ----------------------------------------------------------------------------------------------------


def _record(trial: Trial) -> str | None:
    family = trial.family
    if not isinstance(family, JaxFamily | HostFamily):
        return f"must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not {type(family).__name__}"
    if not isinstance(family.spaces, Spaces):
        return "spaces must be epg's Spaces record"
    if family.horizon < 1 or family.version < 1:
        return "horizon and version must be at least 1"
    return None


def _task(trial: Trial) -> str | None:
    for leaf in jax.tree.leaves(trial.family.sample(jax.random.key(0))):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.number):
            return "a task must consist of numbers only"
        if not np.isfinite(leaf).all():
            return "sample gave a number that is not finite"
    return None


def _shapes(trial: Trial) -> str | None:
    features = trial.family.features(trial.family.sample(jax.random.key(0)))
    declared = (trial.family.spaces.features,)
    return trial.shapes() or _unlike({"features": (features, jnp.float32, declared)})


def _compiles(trial: Trial) -> str | None:
    for name, (function, arguments) in trial.pieces().items():
        if not _close(function(*arguments), jax.jit(function)(*arguments), rtol=1e-4, atol=1e-5):
            return f"{name} gives another result when compiled: it must be a pure function of its arguments"
    return None


def _repeats(trial: Trial) -> str | None:
    rows = _rows(trial.family)
    same = trial.rollout(rows).equals(trial.rollout(rows))
    return None if same else "the same keys and actions must give the same rollout"


def _finite(trial: Trial) -> str | None:
    sound = trial.rollout(_rows(trial.family, seed=1)).finite
    return None if sound else "a rollout with standard normal actions gave a number that is not finite"


def _bounded(trial: Trial) -> str | None:
    if trial.family.spaces.discrete:
        return None
    rows = _rows(trial.family, seed=2)
    sound = trial.rollout(rows._replace(actions=1e6 * rows.actions)).finite
    return None if sound else "huge actions (a million) must stay finite: clip the action before it is applied"


def _batches(trial: Trial) -> str | None:
    rows = _rows(trial.family, seed=3, steps=BRIEF)
    many = trial.rollout(rows)
    same = all(trial.rollout(rows.row(index)).resembles(many.row(index)) for index in range(ROWS))
    return None if same else "a lifetime's result depends on its neighbours in a batch"


def _varies(trial: Trial) -> str | None:
    tasks = _rows(trial.family, seed=5, steps=BRIEF, number=16).tasks
    if any(np.ptp(np.asarray(leaf), axis=0).any() for leaf in jax.tree.leaves(tasks) if np.size(leaf)):
        return None
    return "16 tasks came out alike: sample must use its key"


def _with_nan(rows: Rows) -> Rows:
    """Let the middle row's third action be not a number."""
    return rows._replace(actions=rows.actions.at[2, 1].set(jnp.nan))


def _nan_ends(trial: Trial) -> str | None:
    if trial.family.spaces.discrete:
        return None
    seen = trial.rollout(_with_nan(_rows(trial.family, seed=4, steps=BRIEF)))
    if not (seen.terminated[2, 1] and seen.exploded[2, 1]):
        return "an action that is not a number must end the episode as exploded, terminated too: see to it in read"
    return None if seen.finite else "after an action that is not a number, all numbers must be finite"


def _neighbours(trial: Trial) -> str | None:
    if trial.family.spaces.discrete:
        return None
    rows = _rows(trial.family, seed=4, steps=BRIEF)
    sound, exploded = trial.rollout(rows), trial.rollout(_with_nan(rows))
    same = all(sound.row(index).equals(exploded.row(index)) for index in (0, 2))
    return None if same else "an explosion in one row must not change a bit of the others"


def _in_part(trial: HostTrial) -> str | None:
    """Ask what scoring needs: rows repeated, and only some of them advanced."""
    rows = _rows(trial.family, seed=6, steps=BRIEF)
    whole = trial.simulator(rows.tasks, ROWS)
    fresh = whole.prepare(trial.draw(rows, BRIEF + 1))[0]
    twice, new = whole.repeat(2), np.repeat(fresh, 2, axis=0)
    raw = whole.begin(fresh)
    if not np.array_equal(np.repeat(raw, 2, axis=0), twice.begin(new)):
        return "the simulator's repeat(2) must hold rows 0, 0, 1, 1, 2, 2"
    control = trial.steer(raw, rows.actions[0], rows.tasks)
    expected, every = whole.advance(control, fresh), np.repeat(control, 2, axis=0)
    early, late = np.array([0, 3, 4]), np.array([1, 2, 5])
    first = twice.advance(every, new, early)[early].copy()
    second = twice.advance(every, new, late)[late]
    if not np.array_equal(first, expected) or not np.array_equal(second, expected):
        return "the simulator's advance must move the rows it is asked to, as it would among all, and no others"
    return None


Question = Callable[[Any], str | None]
QUESTIONS: dict[str, Question] = {
    "is a family record": _record,
    "a task is data: finite numbers": _task,
    "shapes and dtypes are as declared": _shapes,
    "functions are pure and compile": _compiles,
    "the same keys repeat a rollout": _repeats,
    "rollouts stay finite": _finite,
    "huge actions stay finite": _bounded,
    "batching changes nothing": _batches,
    "tasks vary": _varies,
}
"""Asked of every family."""
HOST_QUESTIONS: dict[str, Question] = {
    "an action that is not a number ends the episode": _nan_ends,
    "an explosion leaves its neighbours alone": _neighbours,
    "rows repeat, and advance in part": _in_part,
}
"""Asked also of what is simulated outside JAX, where a lifetime goes on after an explosion."""
FATAL = ("is a family record", "a task is data: finite numbers", "shapes and dtypes are as declared")


def questions_of(family: Any) -> dict[str, Question]:
    """Return the questions that are asked of a family."""
    return QUESTIONS | HOST_QUESTIONS if isinstance(family, HostFamily) else QUESTIONS


def failures(checks: list[Check]) -> Iterator[str]:
    """Say each problem as a sentence."""
    return (f"{check.name}: {check.problem}." for check in checks if check.problem)
