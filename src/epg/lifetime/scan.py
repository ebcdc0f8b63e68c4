"""The scan driver: a whole lifetime of a JAX family as one compiled program (Algorithm 2)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from epg.lifetime.learner import Control
from epg.lifetime.update import Log, Plan, Student, minibatches, outcome, start, update
from epg.parts import normaliser as norm
from epg.parts.families.base import JaxFamily, Task
from epg.parts.policy import Policy, distribution, draw_noise
from epg.words.keys import Key, Stream, stream_key
from epg.words.records import Outcome, Rollout


class Scene(eqx.Module):
    """The simulator between two steps."""

    state: Any  # the family's
    age: Array  # steps since the last reset
    gained: Array  # reward since the last reset


def run_lifetime(plan: Plan, family: JaxFamily, task: Task, control: Control, key: Key) -> Outcome:
    """Train a fresh policy on one task for U steps, then score it."""
    reset_key, action_key, shuffle_key = (
        stream_key(key, stream) for stream in (Stream.RESET, Stream.ACTION, Stream.SHUFFLE)
    )
    features = family.features(task)

    def one_update(carry: tuple[Student, Scene], index: Array) -> tuple[tuple[Student, Scene], Any]:
        student, scene = carry
        fold = jax.random.fold_in
        scene, rollout, ended = _simulate(
            plan, family, task, student, scene, fold(action_key, index), fold(reset_key, index + 1)
        )
        batches = minibatches(plan.lifetime, fold(shuffle_key, index))
        student, report = update(plan, student, rollout, features, control, batches)
        return (student, scene), (ended, report)

    first = family.reset(jax.random.fold_in(reset_key, 0), task)
    carry = (start(plan, key), Scene(first, jnp.zeros((), jnp.int32), jnp.zeros(())))
    (student, _), (ended, told) = jax.lax.scan(one_update, carry, jnp.arange(plan.lifetime.updates))
    returns = score(plan, family, task, student, stream_key(key, Stream.SCORE))
    steps = plan.lifetime.steps + plan.lifetime.scoring_episodes * family.horizon
    return outcome(student, Log(ended, told, returns, jnp.zeros((), jnp.int32), jnp.full((), steps, jnp.int32)))


def _act(plan: Plan, student: Student, observation: Array, noise: Array) -> Array:
    seen = norm.normalise(student.normaliser.observation, observation)
    return distribution(student.trained.policy, seen, plan.policy.activation).sample(noise)


def _simulate(
    plan: Plan,
    family: JaxFamily,
    task: Task,
    student: Student,
    scene: Scene,
    action_key: Key,
    reset_key: Key,
) -> tuple[Scene, Rollout, Array]:
    """Act for M steps with a fixed policy; also return the returns of the episodes that ended, NaN elsewhere."""
    steps = plan.lifetime.steps_per_update
    # All of an update's random numbers at once: a draw inside the loop would cost more than the physics.
    noise = draw_noise(action_key, plan.spaces, steps)
    fresh = jax.vmap(family.reset, (0, None))(jax.random.split(reset_key, steps), task)

    def one_step(scene: Scene, drawn: tuple[Array, Any]) -> tuple[Scene, tuple[Rollout, Array]]:
        noise, new = drawn
        observation = family.observe(scene.state, task)
        action = _act(plan, student, observation, noise)
        state, reward, terminated = family.step(scene.state, action, task)
        gained, age = scene.gained + reward, scene.age + 1
        truncated = (age >= family.horizon) & ~terminated
        end = terminated | truncated
        row = Rollout(observation, action, reward, terminated, truncated, family.observe(state, task))
        state = jax.tree.map(lambda a, b: jnp.where(end, a, b), new, state)
        after = Scene(state, jnp.where(end, 0, age), jnp.where(end, 0.0, gained))
        return after, (row, jnp.where(end, gained, jnp.nan))

    scene, (rollout, ended) = jax.lax.scan(one_step, scene, (noise, fresh))
    return scene, rollout, ended


def try_out(plan: Plan, family: JaxFamily, task: Task, policy: Policy, key: Key) -> Array:
    """Return the scores of a policy as it is, [episodes]; nothing is trained."""
    student = eqx.tree_at(lambda it: it.trained.policy, start(plan, key), policy)
    return score(plan, family, task, student, stream_key(key, Stream.SCORE))


def score(plan: Plan, family: JaxFamily, task: Task, student: Student, key: Key) -> Array:
    """Return the undiscounted returns of the scoring trajectories of the trained policy, [episodes]."""

    def episode(key: Key) -> Array:
        noise = draw_noise(stream_key(key, Stream.ACTION), plan.spaces, family.horizon)
        state = family.reset(stream_key(key, Stream.RESET), task)

        def one_step(carry: tuple[Any, Array, Array], noise: Array) -> tuple[tuple[Any, Array, Array], None]:
            state, alive, total = carry
            action = _act(plan, student, family.observe(state, task), noise)
            state, reward, terminated = family.step(state, action, task)
            # A step after the end adds nothing, not even NaN.
            total = total + jnp.where(alive, reward, 0.0)
            return (state, alive & ~terminated, total), None

        return jax.lax.scan(one_step, (state, jnp.array(True), jnp.zeros(())), noise)[0][2]

    return jax.vmap(episode)(jax.random.split(key, plan.lifetime.scoring_episodes))
