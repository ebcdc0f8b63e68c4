"""One environment step of a lifetime: pure, unbatched, the same for every driver.

    simulator readout -> reward, ends, reset -> observation -> policy -> action -> control for the simulator

A driver only moves the simulator: inside JAX (scan_driver.py) or on the host (host_driver.py).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.types import Rollout
from epg.families.base import Family, Readout, SimStep, State, Task
from epg.lifetime.normalizer import Moments, std
from epg.policies.base import Carry, Params, Policy


class Actor(NamedTuple):
    """What acts: policy parameters and the statistics by which observations are normalized."""

    params: Params
    mean: Array  # [O]
    std: Array  # [O]


class EnvState(NamedTuple):
    """A lifetime between two environment steps: where it is, what was just observed, what will be done next."""

    ctrl: Array  # [C] what to simulate next
    observation: Array  # [O]
    action: Array  # [A], or one integer: what the policy emitted at this observation
    carry: Carry  # the policy's, after this observation
    readout: Readout  # the simulator's
    age: Array  # steps since the episode began
    episode_return: Array  # reward since then
    reward: Array  # of the step that led here; so are all fields below
    terminated: Array
    truncated: Array
    next_observation: Array  # [O] before any reset
    final_return: Array  # return of the episode that ended, NaN if none did
    reset: Array
    diverged: Array


class StepInput(NamedTuple):
    """What a step gets from outside."""

    readout: Readout  # from the simulator
    reset_state: State  # where to continue if the episode is over
    noise: Array  # [A] of the next action


def actor_of(params: Params, observation: Moments) -> Actor:
    """Return what acts with these policy parameters and statistics."""
    return Actor(params, observation.mean, std(observation))


def initial_env_state(policy: Policy, family: Family, task: Task, readout: Readout) -> EnvState:
    """Return the state at the start of a lifetime, before any action is chosen."""
    action = jnp.zeros((), jnp.int32) if family.spaces.discrete else jnp.zeros(family.spaces.action)
    observation, zero, no = family.observation(readout, task), jnp.zeros(()), jnp.array(False)
    ctrl = jnp.zeros_like(family.to_ctrl(readout, action, task))
    return EnvState(
        ctrl=ctrl,
        observation=observation,
        action=action,
        carry=policy.carry(),
        readout=readout,
        age=zero,
        episode_return=zero,
        reward=zero,
        terminated=no,
        truncated=no,
        next_observation=observation,
        final_return=zero,
        reset=no,
        diverged=no,
    )


def act(policy: Policy, family: Family, actor: Actor, task: Task, state: EnvState, noise: Array) -> EnvState:
    """Choose the action at the current readout."""
    observation = family.observation(state.readout, task)
    distribution, carry = policy.apply(actor.params, state.carry, (observation - actor.mean) / actor.std)
    action = distribution.sample(noise)
    ctrl = family.to_ctrl(state.readout, action, task)
    return state._replace(observation=observation, action=action, ctrl=ctrl, carry=carry)


def env_step(policy: Policy, family: Family, actor: Actor, task: Task, state: EnvState, given: StepInput) -> EnvState:
    """Return the next state: interpret what the simulator returned, close the episode if it is over, and act."""
    age = state.age + 1.0
    result = family.step_result(SimStep(state.readout, state.action, given.readout, given.reset_state, age), task)
    episode_return = state.episode_return + result.reward
    done = result.terminated | result.truncated
    after = state._replace(
        carry=policy.remember(state.carry, state.action, result.reward, done),
        readout=result.readout,
        age=jnp.where(done, 0.0, age),
        episode_return=jnp.where(done, 0.0, episode_return),
        reward=result.reward,
        terminated=result.terminated,
        truncated=result.truncated,
        next_observation=result.next_observation,
        final_return=jnp.where(done, episode_return, jnp.nan),
        reset=result.reset,
        diverged=result.diverged,
    )
    return act(policy, family, actor, task, after, given.noise)


def final_carry(policy: Policy, state: EnvState) -> Carry:
    """Return what a policy carries out of a lifetime into its scoring episodes: the last episode is cut, unrewarded."""
    return policy.remember(state.carry, state.action, jnp.zeros(()), jnp.array(True))


def transitions(before: EnvState, after: EnvState) -> Rollout:
    """Return the transitions between states and the states that follow them."""
    return Rollout(
        before.observation, before.action, after.reward, after.terminated, after.truncated, after.next_observation
    )


class Packing:
    """How an EnvState lies in one float32 vector: on the host, one transfer a step instead of a dozen."""

    def __init__(self, template: EnvState) -> None:
        self.template, start = template, 0
        self.columns: dict[str, slice] = {}
        for name, field in template._asdict().items():
            size = sum(leaf.size for leaf in jax.tree.leaves(field))
            self.columns[name] = slice(start, start + size)
            start += size

    def pack(self, state: EnvState) -> Array:
        """Lay a state out."""
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(state)])

    def unpack(self, packed: Array) -> EnvState:
        """Read states back, [..., K] -> leaves [..., *shape]."""
        leaves, structure = jax.tree.flatten(self.template)
        start, found = 0, []
        for like in leaves:
            part = packed[..., start : start + like.size].reshape(*packed.shape[:-1], *like.shape)
            found.append(part > 0.0 if like.dtype == jnp.bool_ else part.astype(like.dtype))
            start += like.size
        return jax.tree.unflatten(structure, found)

    def column(self, packed: Any, name: str) -> Any:
        """Return one field's columns as they are; a scalar field loses its axis."""
        part = packed[..., self.columns[name]]
        return part if getattr(self.template, name).ndim else part[..., 0]

    def rollout(self, packed: Array) -> Rollout:
        """Turn the states around M steps, [M + 1, K], into the transitions between them."""
        states = self.unpack(packed)
        return transitions(jax.tree.map(lambda leaf: leaf[:-1], states), jax.tree.map(lambda leaf: leaf[1:], states))
