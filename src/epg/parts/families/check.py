"""The public checker of families: `epg check my_module:my_family`. Each check names what to change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.parts.families.base import JaxFamily
from epg.parts.policy import draw_noise
from epg.words.settings import Spaces

STEPS = 200


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
    for name, question in QUESTIONS.items():
        try:
            problem = question(family)
        except Exception as error:  # whatever a user's function raises is that check's answer
            problem = f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        checks.append(Check(name, problem))
        if problem and name in FATAL:
            break
    return checks


def _record(family: Any) -> str | None:
    if not isinstance(family, JaxFamily):
        return f"must be a JaxFamily, not {type(family).__name__}"
    if not isinstance(family.spaces, Spaces):
        return "spaces must be epg's Spaces record"
    if family.horizon < 1 or family.version < 1:
        return "horizon and version must be at least 1"
    return None


def _first(family: JaxFamily, seed: int = 0) -> tuple[Any, Any]:
    task = family.sample(jax.random.key(seed))
    return task, family.reset(jax.random.key(seed + 1), task)


def _task(family: JaxFamily) -> str | None:
    task = family.sample(jax.random.key(0))
    for leaf in jax.tree.leaves(task):
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.number):
            return "a task must consist of numbers only"
        if not np.isfinite(leaf).all():
            return "sample gave a number that is not finite"
    return None


def _shapes(family: JaxFamily) -> str | None:
    task, state = _first(family)
    seen = family.observe(state, task)
    if seen.shape != (family.spaces.observation,) or seen.dtype != jnp.float32:
        return f"observe gives {seen.dtype}{list(seen.shape)}, spaces say float32[{family.spaces.observation}]"
    after, reward, terminated = family.step(state, _actions(family)[0], task)
    if reward.shape != () or reward.dtype != jnp.float32:
        return f"step must give a float32 reward of no dimension, not {reward.dtype}{list(reward.shape)}"
    if terminated.shape != () or terminated.dtype != jnp.bool_:
        return f"step must give `terminated` as one bool, not {terminated.dtype}{list(terminated.shape)}"
    if jax.tree.map(_kind, after) != jax.tree.map(_kind, state):
        return "step must return a state of the same structure, shapes and dtypes as reset"
    features = family.features(task)
    if features.shape != (family.spaces.features,):
        return f"features gives shape {list(features.shape)}, spaces say [{family.spaces.features}]"
    return None


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any]:
    return jnp.shape(leaf), jnp.result_type(leaf)


def _actions(family: JaxFamily, seed: int = 2) -> jax.Array:
    noise = draw_noise(jax.random.key(seed), family.spaces, STEPS)
    return jnp.argmax(noise, axis=-1) if family.spaces.discrete else noise


def _rollout(family: JaxFamily, actions: jax.Array, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    task, state = _first(family, seed)

    def body(state: Any, action: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        after, reward, terminated = family.step(state, action, task)
        fresh = family.reset(jax.random.key(seed + 1), task)
        following = jax.tree.map(lambda a, b: jnp.where(terminated, a, b), fresh, after)
        return following, (family.observe(after, task), reward)

    return jax.lax.scan(body, state, actions)[1]


def _compiles(family: JaxFamily) -> str | None:
    task, state = _first(family)
    action = _actions(family)[0]
    plain = family.step(state, action, task)
    compiled = jax.jit(family.step)(state, action, task)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(compiled), strict=True):
        if not np.allclose(a, b, rtol=1e-4, atol=1e-5):
            return "step gives another result when compiled: it must be a pure function of its arguments"
    return None


def _repeats(family: JaxFamily) -> str | None:
    actions = _actions(family)
    once, again = _rollout(family, actions), _rollout(family, actions)
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(once, again, strict=True))
    return None if same else "the same keys and actions must give the same rollout"


def _finite(family: JaxFamily) -> str | None:
    for seed in range(4):
        if not all(np.isfinite(part).all() for part in _rollout(family, _actions(family, seed), seed)):
            return "a rollout with standard normal actions gave a number that is not finite"
    return None


def _bounded(family: JaxFamily) -> str | None:
    if family.spaces.discrete:
        return None
    huge = 1e6 * _actions(family)
    sound = all(np.isfinite(part).all() for part in _rollout(family, huge))
    return None if sound else "huge actions (a million) must stay finite: clip the action in step"


def _batches(family: JaxFamily) -> str | None:
    tasks = jax.vmap(family.sample)(jax.random.split(jax.random.key(3), 3))
    states = jax.vmap(family.reset)(jax.random.split(jax.random.key(4), 3), tasks)
    many = jax.vmap(family.step)(states, _actions(family)[:3], tasks)
    for index in range(3):
        task, state = jax.tree.map(lambda leaf: leaf[index], (tasks, states))  # noqa: B023
        one = family.step(state, _actions(family)[index], task)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
            if not np.allclose(a, b[index], rtol=1e-4, atol=1e-5):
                return "a lifetime's result depends on its neighbours in a batch"
    return None


def _varies(family: JaxFamily) -> str | None:
    tasks = jax.vmap(family.sample)(jax.random.split(jax.random.key(5), 16))
    if any(np.ptp(np.asarray(leaf), axis=0).any() for leaf in jax.tree.leaves(tasks) if np.size(leaf)):
        return None
    return "16 tasks came out alike: sample must use its key"


QUESTIONS: dict[str, Callable[[Any], str | None]] = {
    "is a family record": _record,
    "a task is data: finite numbers": _task,
    "shapes and dtypes are as declared": _shapes,
    "step is pure and compiles": _compiles,
    "the same keys repeat a rollout": _repeats,
    "rollouts stay finite": _finite,
    "huge actions stay finite": _bounded,
    "batching changes nothing": _batches,
    "tasks vary": _varies,
}
FATAL = ("is a family record", "a task is data: finite numbers", "shapes and dtypes are as declared")


def failures(checks: list[Check]) -> Iterator[str]:
    """Say each problem as a sentence."""
    return (f"{check.name}: {check.problem}." for check in checks if check.problem)
