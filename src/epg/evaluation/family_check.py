"""The public checker of families: `epg check my_module:my_family`. Each check names what to change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.spaces import Spaces
from epg.evaluation.check_rollouts import ROWS, CheckedFamily, Rows
from epg.families.base import HostFamily, JaxFamily, StepResult, unstack
from epg.families.gym_factory import GymFamily

SHORT = 10
"""Steps that are too few for rounding errors to grow."""


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


def check_family(family: Any, names: Iterable[str] = ()) -> list[Check]:
    """Run these checks, or every one; those that need an earlier one that failed are left out."""
    checks, checked, known = [], CheckedFamily(family), checks_of(family)
    for name in names or known:
        try:
            problem = known[name](checked)
        except Exception as error:  # whatever a user's function raises is that check's answer
            problem = f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        checks.append(Check(name, problem))
        if problem and name in FATAL:
            break
    return checks


def _record(checked: CheckedFamily) -> str | None:
    family = checked.family
    if not isinstance(family, JaxFamily | HostFamily):
        return f"must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not {type(family).__name__}"
    if not isinstance(family.spaces, Spaces):
        return "spaces must be epg's Spaces record"
    if family.horizon < 1 or family.version < 1:
        return "horizon and version must be at least 1"
    return None


def _task(checked: CheckedFamily) -> str | None:
    for leaf in jax.tree.leaves(checked.family.sample(jax.random.key(0))):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.number):
            return "a task must consist of numbers only"
        if not np.isfinite(leaf).all():
            return "sample gave a number that is not finite"
    return None


def _kinds(tree: Any) -> dict[str, str]:
    """Return dtype and shape of each leaf, or the type of one that is no array."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): f"{leaf.dtype}{list(leaf.shape)}"
        if hasattr(leaf, "dtype")
        else type(leaf).__name__
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _mismatch(seen: Any, expected: Any) -> str | None:
    """Say which leaf has not the dtype and shape of the expected one."""
    found, wanted = _kinds(seen), _kinds(expected)
    for name in wanted | found:
        if found.get(name) != wanted.get(name):
            return f"{name} must be {wanted.get(name, 'left out')}, not {found.get(name, 'left out')}"
    return None


def _shapes(checked: CheckedFamily) -> str | None:
    (task, _, step), family = checked.first_step, checked.family
    readout, flag = step.before, cast(Any, jax.ShapeDtypeStruct((), jnp.bool_))
    if isinstance(family, HostFamily):
        readout = jax.ShapeDtypeStruct((family.readout_size,), jnp.float32)
    problem = _mismatch(
        {"at_start": step.before, "after_step": step.after}, {"at_start": readout, "after_step": readout}
    )
    if problem:  # what follows would fail for it
        return problem
    step = jax.tree.map(jnp.asarray, step)
    if isinstance(family, HostFamily) and jnp.ndim(family.to_ctrl(step.before, step.action, task)) != 1:
        return "to_ctrl must give a vector"
    observation, features, reward = (
        cast(Any, jax.ShapeDtypeStruct(shape, jnp.float32))
        for shape in ((family.spaces.observation,), (family.spaces.features,), ())
    )
    return _mismatch(
        {
            "observation": family.observation(step.before, task),
            "features": family.features(task),
            "step_result": family.step_result(step, task),
        },
        {
            "observation": observation,
            "features": features,
            "step_result": StepResult(observation, reward, flag, flag, flag, flag, readout),
        },
    )


def _compiles(checked: CheckedFamily) -> str | None:
    task, key, step = jax.tree.map(jnp.asarray, checked.first_step)
    family = checked.family
    functions = {
        "sample": (family.sample, (key,)),
        "initial_state": (family.initial_state, (key, task)),
        "observation": (family.observation, (step.before, task)),
        "to_ctrl": (family.to_ctrl, (step.before, step.action, task)),
        "step_result": (family.step_result, (step, task)),
    }
    if isinstance(family, JaxFamily):
        functions["step"] = (family.advance, (step.before, step.action, task))
    for name, (function, arguments) in functions.items():
        if not _close(function(*arguments), jax.jit(function)(*arguments), rtol=1e-4, atol=1e-5):
            return f"{name} gives another result when compiled: it must be a pure function of its arguments"
    return None


def _close(one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Whether two trees differ by rounding errors only."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True) for a, b in pairs)


def _repeats(checked: CheckedFamily) -> str | None:
    rows, host = checked.rows(), isinstance(checked.family, HostFamily)
    again = checked if host else CheckedFamily(checked.family)  # only a new trace of JAX functions could differ
    same = checked.rollout(rows).equals(again.rollout(rows))
    if not same and isinstance(checked.family, GymFamily):
        return "make(seed) must give the same task for the same seed, and reset(seed) the same episode: draw from them"
    return None if same else "the same keys and actions must give the same rollout"


def _finite(checked: CheckedFamily) -> str | None:
    sound = checked.rollout(checked.rows(seed=1)).finite
    return None if sound else "a rollout with standard normal actions gave a number that is not finite"


def _bounded(checked: CheckedFamily) -> str | None:
    if checked.family.spaces.discrete:
        return None
    rows = checked.rows(seed=2)
    sound = checked.rollout(rows._replace(actions=1e6 * rows.actions)).finite
    return None if sound else "huge actions (a million) must stay finite: clip the action before it is applied"


def _batches(checked: CheckedFamily) -> str | None:
    rows = checked.rows(seed=3)
    many, alone = checked.rollout(rows), [checked.rollout(rows.row(index)) for index in range(ROWS)]
    same = all(_close(many.row(index, SHORT), alone[index].row(0, SHORT)) for index in range(ROWS))
    return None if same else "a lifetime's result depends on its neighbours in a batch"


def _varies(checked: CheckedFamily) -> str | None:
    tasks = checked.tasks(jax.random.split(jax.random.key(5), 16))
    if not any(np.ptp(np.asarray(leaf), axis=0).any() for leaf in jax.tree.leaves(tasks) if np.size(leaf)):
        return "16 tasks came out alike: sample must use its key"
    rows = checked.rows(seed=5)
    keys, actions = jnp.repeat(rows.keys[:1], ROWS), jnp.repeat(rows.actions[:, :1], ROWS, axis=1)
    seen = checked.rollout(Rows(rows.tasks, keys, actions))
    if any(not seen.row(0).equals(seen.row(index)) for index in range(1, ROWS)):
        return None
    if isinstance(checked.family, GymFamily):
        return "make ignores its seed: three seeds gave environments that behave alike, episode for episode"
    return "three tasks behave alike with the same actions: reset, observe and step must use the task"


def _balanced(checked: CheckedFamily) -> str | None:
    if checked.family.orbit is None:
        return None
    tasks = checked.tasks(jax.random.split(jax.random.key(7), 16))
    start, half = (jax.vmap(checked.family.orbit, (0, None))(tasks, jnp.float32(share)) for share in (0.0, 0.5))
    if not _close(start, tasks, rtol=1e-4, atol=1e-4):
        return "orbit must leave a task as it is when the share is 0"
    return "orbit must move a task when the share is 0.5" if _close(half, tasks) else None


def _constant(checked: CheckedFamily) -> str | None:
    declared = checked.family.constant_inputs
    if not declared:
        return None
    index, _, std = (np.array(column) for column in zip(*declared, strict=True))
    if index.min() < 0 or index.max() >= checked.family.spaces.observation or not (std > 0).all():
        return "constant_inputs needs indices of observations, and standard deviations above zero"
    if np.ptp(checked.rollout(checked.rows(seed=8)).observation[..., index], axis=0).any():
        return "an observation in constant_inputs changes within a lifetime: leave it out"
    return None


def _nan_ends(checked: CheckedFamily) -> str | None:
    """Let the middle row's third action be not a number."""
    if checked.family.spaces.discrete:
        return None
    rows = checked.rows(seed=4)
    seen = checked.rollout(rows._replace(actions=rows.actions.at[2, 1].set(jnp.nan)))
    if not (seen.terminated[2, 1] and seen.diverged[2, 1]):
        return "an action that is not a number must end the episode as diverged, terminated too: see step_result"
    return None if seen.finite else "after an action that is not a number, all numbers must be finite"


def _neighbours(checked: CheckedFamily) -> str | None:
    if checked.family.spaces.discrete:
        return None
    rows = checked.rows(seed=4)
    sound = checked.rollout(rows)
    diverged = checked.rollout(rows._replace(actions=rows.actions.at[2, 1].set(jnp.nan)))
    same = all(sound.row(index).equals(diverged.row(index)) for index in (0, 2))
    return None if same else "divergence in one row must not change a bit of the others"


def _in_part(checked: CheckedFamily) -> str | None:
    """Check what scoring needs: rows repeated, and only some of them advanced."""
    family, rows = checked.family, checked.rows(seed=6)
    whole = family.simulate(unstack(rows.tasks, ROWS))
    states = whole.prepare(np.asarray(jax.vmap(family.initial_state)(rows.keys, rows.tasks)))
    twice, many = whole.repeat(2), np.repeat(states, 2, axis=0)
    readout = whole.begin(states)
    if not np.array_equal(np.repeat(readout, 2, axis=0), twice.begin(many)):
        return "the simulator's repeat(2) must hold rows 0, 0, 1, 1, 2, 2"
    ctrl = np.asarray(jax.vmap(family.to_ctrl)(readout, rows.actions[0], rows.tasks))
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
