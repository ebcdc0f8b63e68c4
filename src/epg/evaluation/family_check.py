"""The public checker of families: `epg check my_module:my_family`. Each check names what to change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.spaces import Spaces
from epg.evaluation.check_rollouts import ROWS, SHORT, HostTester, Rows, Tester, close, make_tester, mismatch
from epg.families.base import HostFamily, JaxFamily


@dataclass(frozen=True)
class Check:
    """One check of a family."""

    name: str
    """What is checked."""
    problem: str | None
    """What to change, or None if all is well."""

    @property
    def passed(self) -> bool:
        """Whether there is no problem."""
        return self.problem is None


def check_family(family: Any) -> list[Check]:
    """Run every check; those that need an earlier one that failed are left out."""
    checks = []
    tester = make_tester(family)
    for name, run in checks_of(family).items():
        try:
            problem = run(tester)
        except Exception as error:  # whatever a user's function raises is that check's answer
            problem = f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        checks.append(Check(name, problem))
        if problem and name in FATAL:
            break
    return checks


def _record(tester: Tester) -> str | None:
    family = tester.family
    if not isinstance(family, JaxFamily | HostFamily):
        return f"must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not {type(family).__name__}"
    if not isinstance(family.spaces, Spaces):
        return "spaces must be epg's Spaces record"
    if family.horizon < 1 or family.version < 1:
        return "horizon and version must be at least 1"
    return None


def _task(tester: Tester) -> str | None:
    for leaf in jax.tree.leaves(tester.family.sample(jax.random.key(0))):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.number):
            return "a task must consist of numbers only"
        if not np.isfinite(leaf).all():
            return "sample gave a number that is not finite"
    return None


def _shapes(tester: Tester) -> str | None:
    features = tester.family.features(tester.family.sample(jax.random.key(0)))
    declared = (tester.family.spaces.features,)
    return tester.shape_problem() or mismatch({"features": (features, jnp.float32, declared)})


def _compiles(tester: Tester) -> str | None:
    functions = {"sample": (tester.family.sample, (jax.random.key(0),)), **tester.functions()}
    for name, (function, arguments) in functions.items():
        if not close(function(*arguments), jax.jit(function)(*arguments), rtol=1e-4, atol=1e-5):
            return f"{name} gives another result when compiled: it must be a pure function of its arguments"
    return None


def _repeats(tester: Tester) -> str | None:
    rows = tester.rows()
    same = tester.rollout(rows).equals(tester.rollout(rows))
    return None if same else "the same keys and actions must give the same rollout"


def _finite(tester: Tester) -> str | None:
    sound = tester.rollout(tester.rows(seed=1)).finite
    return None if sound else "a rollout with standard normal actions gave a number that is not finite"


def _bounded(tester: Tester) -> str | None:
    if tester.family.spaces.discrete:
        return None
    rows = tester.rows(seed=2)
    sound = tester.rollout(rows._replace(actions=1e6 * rows.actions)).finite
    return None if sound else "huge actions (a million) must stay finite: clip the action before it is applied"


def _batches(tester: Tester) -> str | None:
    rows = tester.rows(seed=3, steps=SHORT)
    many = tester.rollout(rows)
    same = all(tester.rollout(rows.row(index)).is_close(many.row(index)) for index in range(ROWS))
    return None if same else "a lifetime's result depends on its neighbours in a batch"


def _varies(tester: Tester) -> str | None:
    tasks = tester.rows(seed=5, steps=SHORT, number=16).tasks
    if any(np.ptp(np.asarray(leaf), axis=0).any() for leaf in jax.tree.leaves(tasks) if np.size(leaf)):
        return None
    return "16 tasks came out alike: sample must use its key"


def _balanced(tester: Tester) -> str | None:
    orbit = tester.family.orbit
    if orbit is None:
        return None
    tasks = tester.rows(seed=7, steps=SHORT, number=16).tasks
    start = jax.vmap(orbit, (0, None))(tasks, jnp.zeros(()))
    if not close(start, tasks, rtol=1e-4, atol=1e-4):
        return "orbit must leave a task as it is when the share is 0"
    half = jax.vmap(orbit, (0, None))(tasks, jnp.full((), 0.5))
    if close(half, tasks):
        return "orbit must move a task when the share is 0.5"
    return None


def _constant(tester: Tester) -> str | None:
    declared = tester.family.constant_inputs
    if not declared:
        return None
    index, _, std = (np.array(column) for column in zip(*declared, strict=True))
    if index.min() < 0 or index.max() >= tester.family.spaces.observation or not (std > 0).all():
        return "constant_inputs needs indices of observations, and standard deviations above zero"
    seen = tester.rollout(tester.rows(seed=8, steps=SHORT)).observation[..., index]
    if np.ptp(seen, axis=0).any():
        return "an observation in constant_inputs changes within a lifetime: leave it out"
    return None


def _with_nan(rows: Rows) -> Rows:
    """Let the middle row's third action be not a number."""
    return rows._replace(actions=rows.actions.at[2, 1].set(jnp.nan))


def _nan_ends(tester: Tester) -> str | None:
    if tester.family.spaces.discrete:
        return None
    seen = tester.rollout(_with_nan(tester.rows(seed=4, steps=SHORT)))
    if not (seen.terminated[2, 1] and seen.diverged[2, 1]):
        return "an action that is not a number must end the episode as diverged, terminated too: see step_result"
    return None if seen.finite else "after an action that is not a number, all numbers must be finite"


def _neighbours(tester: Tester) -> str | None:
    if tester.family.spaces.discrete:
        return None
    rows = tester.rows(seed=4, steps=SHORT)
    sound, diverged = tester.rollout(rows), tester.rollout(_with_nan(rows))
    same = all(sound.row(index).equals(diverged.row(index)) for index in (0, 2))
    return None if same else "divergence in one row must not change a bit of the others"


def _in_part(tester: HostTester) -> str | None:
    """Check what scoring needs: rows repeated, and only some of them advanced."""
    rows = tester.rows(seed=6, steps=SHORT)
    whole = tester.stepper.batch(rows.keys, rows.tasks).simulator
    states = whole.prepare(tester.initial_states(rows, SHORT + 1))[0]
    twice, many = whole.repeat(2), np.repeat(states, 2, axis=0)
    readout = whole.begin(states)
    if not np.array_equal(np.repeat(readout, 2, axis=0), twice.begin(many)):
        return "the simulator's repeat(2) must hold rows 0, 0, 1, 1, 2, 2"
    ctrl = np.asarray(jax.vmap(tester.family.to_ctrl)(readout, rows.actions[0], rows.tasks))
    expected, every = whole.advance(ctrl, states), np.repeat(ctrl, 2, axis=0)
    early, late = np.array([0, 3, 4]), np.array([1, 2, 5])
    first = twice.advance(every, many, early)[early].copy()
    second = twice.advance(every, many, late)[late]
    if not np.array_equal(first, expected) or not np.array_equal(second, expected):
        return "the simulator's advance must move the rows it is asked to, as it would among all, and no others"
    return None


CheckFunction = Callable[[Any], str | None]
CHECKS: dict[str, CheckFunction] = {
    "is a family record": _record,
    "a task is data: finite numbers": _task,
    "shapes and dtypes are as declared": _shapes,
    "functions are pure and compile": _compiles,
    "the same keys repeat a rollout": _repeats,
    "rollouts stay finite": _finite,
    "huge actions stay finite": _bounded,
    "batching changes nothing": _batches,
    "tasks vary": _varies,
    "the orbit starts at the task and moves it": _balanced,
    "constant inputs are constant": _constant,
}
"""For every family."""
HOST_CHECKS: dict[str, CheckFunction] = {
    "an action that is not a number ends the episode": _nan_ends,
    "divergence leaves other rows alone": _neighbours,
    "rows repeat, and advance in part": _in_part,
}
"""Also for what is simulated outside JAX, where a lifetime continues after divergence."""
FATAL = ("is a family record", "a task is data: finite numbers", "shapes and dtypes are as declared")


def checks_of(family: Any) -> dict[str, CheckFunction]:
    """Return the checks that apply to a family."""
    return CHECKS | HOST_CHECKS if isinstance(family, HostFamily) else CHECKS


def failures(checks: list[Check]) -> Iterator[str]:
    """Say each problem as a sentence."""
    return (f"{check.name}: {check.problem}." for check in checks if check.problem)
