"""What happens between two calls of a simulator: read it, close the step, end the episode, act. Pure and unbatched."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.lifetime.update import Plan
from epg.parts.families.base import HostFamily, Step, Task
from epg.parts.normaliser import Moments, deviation
from epg.parts.policy import Mlp, Policy, distribution
from epg.words.records import Rollout


class Acting(NamedTuple):
    """What acting needs of a student, in plain tuples: it is handed over at every step, and
    modules take longer to take apart (10 us a call)."""

    weights: tuple[Array, ...]  # of the policy
    biases: tuple[Array, ...]
    log_std: Array  # [A], or [0] when discrete
    mean: Array  # [O] by which observations are normalised
    deviation: Array  # [O]


class Row(NamedTuple):
    """A lifetime between two steps. It travels as one float32 vector: one transfer a step instead of a dozen."""

    control: Array  # [C] what to simulate next
    observation: Array  # [O]
    action: Array  # [A], or one whole number: what the policy emitted at this observation
    raw: Array  # [W] what the simulator said last
    age: Array  # steps since the episode began
    gained: Array  # reward since then
    reward: Array  # of the step that led here, as is all below
    terminated: Array
    truncated: Array
    next_observation: Array  # [O] before any restart
    ended: Array  # return of the episode that ended, NaN if none did
    restart: Array
    exploded: Array


class Heard(NamedTuple):
    """What a step brings from outside."""

    after: Array  # [W] what the simulator says now
    fresh: Array  # [F] where to go on if the episode is over
    noise: Array  # [A] of the next action


def actor_of(policy: Policy, observation: Moments) -> Acting:
    """Return what acts with this policy and these statistics."""
    return Acting(policy.mlp.weights, policy.mlp.biases, policy.log_std, observation.mean, deviation(observation))


def act(plan: Plan, family: HostFamily, actor: Acting, task: Task, raw: Array, noise: Array) -> tuple[Array, ...]:
    """Return the observation, the action and the simulator's control."""
    observation = family.view(raw, task)
    policy = Policy(Mlp(actor.weights, actor.biases), actor.log_std)
    seen = (observation - actor.mean) / actor.deviation
    action = distribution(policy, seen, plan.policy.activation).sample(noise)
    return observation, action, family.steer(raw, action, task)


def first_row(plan: Plan, family: HostFamily, task: Task, raw: Array) -> Row:
    """Return the row at the start of a lifetime, before any action is chosen."""
    action = jnp.zeros((), jnp.int32) if plan.spaces.discrete else jnp.zeros(plan.spaces.action)
    observation, zero, no = family.view(raw, task), jnp.zeros(()), jnp.array(False)
    control = jnp.zeros_like(family.steer(raw, action, task))
    return Row(control, observation, action, raw, zero, zero, zero, no, no, observation, zero, no, no)


def choose(plan: Plan, family: HostFamily, actor: Acting, task: Task, row: Row, noise: Array) -> Row:
    """Choose the row's action anew: the policy has changed since."""
    observation, action, control = act(plan, family, actor, task, row.raw, noise)
    return row._replace(observation=observation, action=action, control=control)


def react(
    plan: Plan, family: HostFamily, actor: Acting, task: Task, row: Row, heard: tuple[Array, Array, Array]
) -> Row:
    """Return the next row, given what the simulator says, where an ended episode goes on, and the action's noise."""
    after, fresh, noise = heard
    age = row.age + 1.0
    reading = family.read(Step(row.raw, row.action, after, fresh, age), task)
    gained = row.gained + reading.reward
    end = reading.terminated | reading.truncated
    observation, action, control = act(plan, family, actor, task, reading.raw, noise)
    return Row(
        control=control,
        observation=observation,
        action=action,
        raw=reading.raw,
        age=jnp.where(end, 0.0, age),
        gained=jnp.where(end, 0.0, gained),
        reward=reading.reward,
        terminated=reading.terminated,
        truncated=reading.truncated,
        next_observation=reading.next_observation,
        ended=jnp.where(end, gained, jnp.nan),
        restart=reading.restart,
        exploded=reading.exploded,
    )


class Packing:
    """How a Row lies in a vector."""

    def __init__(self, template: Row) -> None:
        self.template, start = template, 0
        self.columns: dict[str, slice] = {}
        for name, leaf in template._asdict().items():
            self.columns[name] = slice(start, start + leaf.size)
            start += leaf.size

    def pack(self, row: Row) -> Array:
        """Lay a row out."""
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in row])

    def unpack(self, packed: Array) -> Row:
        """Read rows back, [..., K] -> leaves [..., *shape]."""
        leaves = [self._leaf(packed, name) for name in Row._fields]
        return Row(*leaves)

    def _leaf(self, packed: Array, name: str) -> Array:
        like = getattr(self.template, name)
        part = packed[..., self.columns[name]].reshape(*packed.shape[:-1], *like.shape)
        return part > 0.0 if like.dtype == jnp.bool_ else part.astype(like.dtype)

    def part(self, packed: Any, name: str) -> Any:
        """Return one field's columns as they are; a scalar field loses its axis."""
        part = packed[..., self.columns[name]]
        return part if getattr(self.template, name).ndim else part[..., 0]

    def rollout(self, packed: Array) -> Rollout:
        """Turn the rows around M steps, [M + 1, K], into the transitions between them."""
        rows = self.unpack(packed)
        begin, after = jax.tree.map(lambda leaf: leaf[:-1], rows), jax.tree.map(lambda leaf: leaf[1:], rows)
        return Rollout(
            begin.observation, begin.action, after.reward, after.terminated, after.truncated, after.next_observation
        )
