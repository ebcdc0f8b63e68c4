"""The public checker of families: `epg check my_module:my_family`. Each check names what to change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.parts.families.base import HostFamily, JaxFamily
from epg.parts.families.trial import BRIEF, ROWS, HostTrial, JaxTrial, Rows, close, unlike
from epg.words.settings import Spaces

AnyTrial = JaxTrial | HostTrial


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


def _record(trial: AnyTrial) -> str | None:
    family = trial.family
    if not isinstance(family, JaxFamily | HostFamily):
        return f"must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not {type(family).__name__}"
    if not isinstance(family.spaces, Spaces):
        return "spaces must be epg's Spaces record"
    if family.horizon < 1 or family.version < 1:
        return "horizon and version must be at least 1"
    return None


def _task(trial: AnyTrial) -> str | None:
    for leaf in jax.tree.leaves(trial.family.sample(jax.random.key(0))):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.number):
            return "a task must consist of numbers only"
        if not np.isfinite(leaf).all():
            return "sample gave a number that is not finite"
    return None


def _shapes(trial: AnyTrial) -> str | None:
    features = trial.family.features(trial.family.sample(jax.random.key(0)))
    declared = (trial.family.spaces.features,)
    return trial.shapes() or unlike({"features": (features, jnp.float32, declared)})


def _compiles(trial: AnyTrial) -> str | None:
    pieces = {"sample": (trial.family.sample, (jax.random.key(0),)), **trial.pieces()}
    for name, (function, arguments) in pieces.items():
        if not close(function(*arguments), jax.jit(function)(*arguments), rtol=1e-4, atol=1e-5):
            return f"{name} gives another result when compiled: it must be a pure function of its arguments"
    return None


def _repeats(trial: AnyTrial) -> str | None:
    rows = trial.rows()
    same = trial.rollout(rows).equals(trial.rollout(rows))
    return None if same else "the same keys and actions must give the same rollout"


def _finite(trial: AnyTrial) -> str | None:
    sound = trial.rollout(trial.rows(seed=1)).finite
    return None if sound else "a rollout with standard normal actions gave a number that is not finite"


def _bounded(trial: AnyTrial) -> str | None:
    if trial.family.spaces.discrete:
        return None
    rows = trial.rows(seed=2)
    sound = trial.rollout(rows._replace(actions=1e6 * rows.actions)).finite
    return None if sound else "huge actions (a million) must stay finite: clip the action before it is applied"


def _batches(trial: AnyTrial) -> str | None:
    rows = trial.rows(seed=3, steps=BRIEF)
    many = trial.rollout(rows)
    same = all(trial.rollout(rows.row(index)).resembles(many.row(index)) for index in range(ROWS))
    return None if same else "a lifetime's result depends on its neighbours in a batch"


def _varies(trial: AnyTrial) -> str | None:
    tasks = trial.rows(seed=5, steps=BRIEF, number=16).tasks
    if any(np.ptp(np.asarray(leaf), axis=0).any() for leaf in jax.tree.leaves(tasks) if np.size(leaf)):
        return None
    return "16 tasks came out alike: sample must use its key"


def _places(trial: AnyTrial) -> str | None:
    orbit, place = trial.family.orbit, trial.family.place
    if place is None:
        return None
    if orbit is None:
        return "a family with a place needs an orbit on which it is"
    tasks = trial.rows(seed=7, steps=BRIEF, number=16).tasks
    places = jax.vmap(place)(tasks)
    if not ((places >= 0) & (places < 1)).all():
        return "place must lie in [0, 1)"
    for wanted in (0.0, 0.5):
        found = jax.vmap(place)(jax.vmap(orbit)(tasks, jnp.mod(wanted - places, 1.0)))
        if not np.allclose(np.mod(found - wanted + 0.5, 1.0), 0.5, atol=1e-4):
            return "orbit must move a task's place by the share it is given"
    return None


def _turns(trial: AnyTrial) -> str | None:
    turns, spaces = trial.family.turns, trial.family.spaces
    if turns is None:
        return None
    if trial.family.place is None:
        return "a family with turns needs the place of a task, which they move"
    if turns.number < 2:
        return "turns.number must be 2 or more"
    # Of the observation's, two rounds: a quaternion comes back with the other sign after one.
    for name, size, rounds in (("observation", spaces.observation, 2), ("action", spaces.action, 1)):
        turn = getattr(turns, name)
        matrix = np.asarray(jax.vmap(turn)(jnp.eye(size))).T
        some = np.asarray(jax.random.normal(jax.random.key(3), (size,)))
        if matrix.shape != (size, size) or not np.allclose(turn(jnp.asarray(some)), matrix @ some, atol=1e-4):
            return f"turns.{name} must be linear, from {size} numbers to as many"
        if not np.allclose(np.linalg.matrix_power(matrix, rounds * turns.number), np.eye(size), atol=1e-4):
            return f"{turns.number} times turns.{name} must come back to where it began"
    return None


def _with_nan(rows: Rows) -> Rows:
    """Let the middle row's third action be not a number."""
    return rows._replace(actions=rows.actions.at[2, 1].set(jnp.nan))


def _nan_ends(trial: AnyTrial) -> str | None:
    if trial.family.spaces.discrete:
        return None
    seen = trial.rollout(_with_nan(trial.rows(seed=4, steps=BRIEF)))
    if not (seen.terminated[2, 1] and seen.exploded[2, 1]):
        return "an action that is not a number must end the episode as exploded, terminated too: see to it in read"
    return None if seen.finite else "after an action that is not a number, all numbers must be finite"


def _neighbours(trial: AnyTrial) -> str | None:
    if trial.family.spaces.discrete:
        return None
    rows = trial.rows(seed=4, steps=BRIEF)
    sound, exploded = trial.rollout(rows), trial.rollout(_with_nan(rows))
    same = all(sound.row(index).equals(exploded.row(index)) for index in (0, 2))
    return None if same else "an explosion in one row must not change a bit of the others"


def _in_part(trial: HostTrial) -> str | None:
    """Ask what scoring needs: rows repeated, and only some of them advanced."""
    rows = trial.rows(seed=6, steps=BRIEF)
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
    "the orbit moves a task's place": _places,
    "turns are linear, and come round": _turns,
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
