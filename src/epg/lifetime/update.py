"""One update of a lifetime, shared by every driver and learner: window -> gradient steps -> statistics."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from epg.lifetime.learner import Control, Learner
from epg.parts.loss import reward_products
from epg.parts.normaliser import Moments, Normaliser, init_normaliser, known_moments
from epg.parts.policy import Categorical, Gaussian, distribution, init_policy
from epg.parts.window import empty_window, learn_statistics, push, view
from epg.words.keys import Key, Stream, stream_key
from epg.words.records import Experience, Outcome, Rollout, Trained, Window
from epg.words.settings import LifetimeSettings, PolicySettings, Spaces

ADAM = {"b1": 0.9, "b2": 0.999}


@dataclass(frozen=True)
class Plan:
    """The fixed part of a lifetime: what is compiled into its program."""

    learner: Learner
    lifetime: LifetimeSettings
    policy: PolicySettings
    spaces: Spaces
    window: int  # N
    correlations: bool = False  # whether each update tells the correlations of the reward

    @property
    def usual(self) -> Moments | None:
        """Return by what observations are normalised from the first step to the last, if anything."""
        if not self.policy.usual_mean:
            return None
        return known_moments(self.policy.usual_mean, self.policy.usual_deviation)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Return the inner Adam (section 4)."""
        return optax.adam(self.lifetime.learning_rate, **ADAM)


class Student(eqx.Module):
    """The state of a lifetime between two updates."""

    trained: Trained
    optimiser: Any
    normaliser: Normaliser
    window: Window
    updates: Array  # how many have been made
    nonfinite: Array  # how many of them met a non-finite number


class Report(eqx.Module):
    """What one update tells."""

    kl: Array  # mean KL(before || after) over the newest rows
    correlations: Array  # [O + A] of the reward within the window; [0] unless the plan asks


def start(plan: Plan, key: Key) -> Student:
    """Begin a lifetime: fresh policy, memory, optimiser, statistics, and an empty window."""
    policy = init_policy(stream_key(key, Stream.POLICY), plan.policy, plan.spaces)
    trained = Trained(policy, plan.learner.init(stream_key(key, Stream.LEARNER)))
    return Student(
        trained,
        plan.optimiser.init(trained),
        init_normaliser(plan.spaces.observation, plan.spaces.action, plan.usual),
        empty_window(plan.window, plan.spaces),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def update(
    plan: Plan, student: Student, rollout: Rollout, features: Array, control: Control, batches: Array
) -> tuple[Student, Report]:
    """Learn from the newest M transitions: gradient steps on minibatches of them, then new statistics."""
    window = push(student.window, rollout, plan.spaces)
    length = plan.lifetime.updates
    progress = jnp.stack([(student.updates + 1) / length, jnp.log10(jnp.float32(length))])
    experience = view(window, rollout, student.normaliser, features, progress)
    before = acting(plan, student.trained, experience)
    trained, optimiser = _descend(plan, student, experience, control, batches)
    report = Report(
        kl=jnp.mean(kl_between(before, acting(plan, trained, experience))),
        correlations=jnp.mean(reward_products(experience), axis=0) if plan.correlations else jnp.zeros(0),
    )
    sound = _all_finite((trained, rollout.reward, rollout.observation))
    return (
        Student(
            trained,
            optimiser,
            learn_statistics(student.normaliser, rollout, plan.spaces, usual=plan.usual is not None),
            window,
            student.updates + 1,
            student.nonfinite + jnp.where(sound, 0, 1),
        ),
        report,
    )


class Log(eqx.Module):
    """What a driver writes down of a lifetime."""

    ended: Array  # [updates, M] return of the episode that ended at this step, NaN where none did
    told: Report  # leaves [updates, ...]
    returns: Array  # [episodes] of the scoring trajectories
    exploded: Array  # episodes that the simulator ended because it failed
    env_steps: Array  # steps simulated, scoring included


def outcome(student: Student, log: Log) -> Outcome:
    """Close a lifetime."""
    returns = log.returns
    scored = jnp.all(jnp.isfinite(returns))
    sound = (student.nonfinite == 0) & scored
    return Outcome(
        final_return=jnp.where(sound, jnp.mean(returns), jnp.nan),
        episode_return=log.ended,
        kl=log.told.kl,
        correlations=log.told.correlations,
        nonfinite=student.nonfinite + jnp.where(scored, 0, 1),
        exploded=log.exploded,
        env_steps=log.env_steps,
        policy=student.trained.policy,
        normaliser=student.normaliser,
    )


def _descend(
    plan: Plan, student: Student, experience: Experience, control: Control, batches: Array
) -> tuple[Trained, Any]:
    """Take the gradient steps of one update (Eq. 6)."""
    prepared = plan.learner.prepare(student.trained, experience, control)
    pace = _pace(plan.lifetime, student.updates)

    def step(carry: tuple[Trained, Any], batch: Array) -> tuple[tuple[Trained, Any], None]:
        trained, state = carry
        gradient = plan.learner.gradient(trained, experience, prepared, batch, control)
        change, state = plan.optimiser.update(gradient, state, trained)
        if pace is not None:
            change = jax.tree.map(lambda it: pace * it, change)
        return (optax.apply_updates(trained, change), state), None

    carry = (student.trained, student.optimiser)
    if batches.shape[0] == 1:  # a loop of one would only hide the step from the compiler
        return step(carry, batches[0])[0]
    return jax.lax.scan(step, carry, batches)[0]


def _pace(lifetime: LifetimeSettings, updates: Array) -> Array | None:
    """Return this update's share of the first step size; None while it never changes."""
    if lifetime.learning_rate_end is None:
        return None
    passed = updates / max(1, lifetime.updates - 1)
    return 1.0 + passed * (lifetime.learning_rate_end / lifetime.learning_rate - 1.0)


def minibatches(lifetime: LifetimeSettings, key: Key) -> Array:
    """Return shuffled row indices [steps, minibatch]: every one of the newest M rows once per pass."""
    rows = jnp.arange(lifetime.steps_per_update)
    if lifetime.minibatch == lifetime.steps_per_update:  # the order within a minibatch changes nothing
        return jnp.tile(rows, (lifetime.passes, 1))
    keys = jax.random.split(key, lifetime.passes)
    shuffled = jax.vmap(lambda one: jax.random.permutation(one, rows))(keys)
    return shuffled.reshape(-1, lifetime.minibatch)


def acting(plan: Plan, trained: Trained, experience: Experience) -> Gaussian | Categorical:
    """Return the policy's distributions on the newest rows."""
    return distribution(trained.policy, experience.observation, plan.policy.activation)


def kl_between(before: Any, after: Any) -> Array:
    """Return KL(before || after) per row."""
    return before.kl(after)


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
