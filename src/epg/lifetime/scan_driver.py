"""The scan driver: a whole lifetime of a JAX family as one compiled program (Algorithm 2)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key, Stream, stream_key
from epg.core.types import LifetimeResult, MetaParams, Rollout
from epg.families.base import JaxFamily, State, Task
from epg.lifetime.env_step import (
    Actor,
    EnvState,
    StepInput,
    act,
    actor_of,
    env_step,
    final_carry,
    initial_env_state,
    transitions,
)
from epg.lifetime.update import InnerConfig, LearnerState, LifetimeLog, begin, minibatches, result_of, update
from epg.policies.base import Carry, Params, Policy
from epg.policies.distributions import draw_noise


class Draws(NamedTuple):
    """All random numbers of T steps: drawn at once, a draw inside the loop would cost more than the physics."""

    noise: Array  # [T, A] of the actions
    reset_states: State  # leaves [T, ...]


def rollout(
    policy: Policy, family: JaxFamily, task: Task, actor: Actor, state: EnvState, draws: Draws
) -> tuple[EnvState, tuple[Rollout, EnvState]]:
    """Act for T steps: the one stepping loop of this driver. Also return transitions and states, leaves [T, ...]."""

    def one_step(state: EnvState, drawn: StepInput) -> tuple[EnvState, tuple[Rollout, EnvState]]:
        given = drawn._replace(readout=family.advance(state.readout, state.ctrl, task))
        after = env_step(policy, family, actor, task, state, given)
        return after, (transitions(state, after), after)

    state = act(policy, family, actor, task, state, draws.noise[0])
    # The action after the last step is chosen again, by the policy that acts then.
    following = jnp.concatenate([draws.noise[1:], draws.noise[-1:]])
    return jax.lax.scan(one_step, state, StepInput(None, draws.reset_states, following))


def run_lifetime(config: InnerConfig, family: JaxFamily, task: Task, meta: MetaParams, key: Key) -> LifetimeResult:
    """Train a policy on one task for U steps, then score it."""
    reset_key, action_key, shuffle_key = (
        stream_key(key, stream) for stream in (Stream.RESET, Stream.ACTION, Stream.SHUFFLE)
    )
    features, steps = family.features(task), config.lifetime.steps_per_update

    def one_update(carry: tuple[LearnerState, EnvState], index: Array) -> tuple[Any, Any]:
        learner, env = carry
        fold = jax.random.fold_in
        draws = draw(family, task, fold(action_key, index), fold(reset_key, index + 1), steps)
        actor = actor_of(learner.params.policy, learner.normalizer.observation)
        env, (newest, states) = rollout(config.policy, family, task, actor, env, draws)
        batches = minibatches(config.lifetime, fold(shuffle_key, index))
        learner, stats = update(config, learner, newest, features, meta, batches)
        return (learner, env), (states.final_return, jnp.sum(newest.terminated), stats)

    first = family.initial_state(jax.random.fold_in(reset_key, 0), task)
    env = initial_env_state(config.policy, family, task, family.initial_readout(first))
    carry = (begin(config, key, meta.policy_init), env)
    (learner, env), (returns, reached, stats) = jax.lax.scan(one_update, carry, jnp.arange(config.lifetime.updates))
    actor = actor_of(learner.params.policy, learner.normalizer.observation)
    if family.resets:
        memory = final_carry(config.policy, env)
        scores, survived = score(config, family, task, actor, memory, stream_key(key, Stream.SCORE))
    else:
        scores, survived = score_onward(config, family, task, actor, env, key), jnp.ones(())
    simulated = config.lifetime.steps + config.lifetime.scoring_episodes * family.horizon
    none, spent = jnp.zeros((), jnp.int32), jnp.full((), simulated, jnp.int32)
    log = LifetimeLog(returns, reached, stats, scores, survived, none, spent)
    return result_of(learner, log)


def draw(family: JaxFamily, task: Task, action_key: Key, reset_key: Key, steps: int) -> Draws:
    """Draw the random numbers of the next steps."""
    states = jax.vmap(family.initial_state, (0, None))(jax.random.split(reset_key, steps), task)
    return Draws(draw_noise(action_key, family.spaces, steps), states)


def score(
    config: InnerConfig, family: JaxFamily, task: Task, actor: Actor, carry: Carry, key: Key
) -> tuple[Array, Array]:
    """Return the undiscounted returns of the scoring trajectories, [episodes], and the share of the limit they last."""

    def episode(key: Key) -> tuple[Array, Array]:
        first = family.initial_state(stream_key(key, Stream.RESET), task)
        noise = draw_noise(stream_key(key, Stream.ACTION), config.spaces, family.horizon)
        again = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (family.horizon, *jnp.shape(leaf))), first)
        env = initial_env_state(config.policy, family, task, family.initial_readout(first))._replace(carry=carry)
        _, (taken, states) = rollout(config.policy, family, task, actor, env, Draws(noise, again))
        # The loop goes on after the end of the episode; what counts is the return at its first end.
        last = jnp.argmax(taken.terminated | taken.truncated)
        return states.final_return[last], (last + 1) / family.horizon

    returns, lasted = jax.vmap(episode)(jax.random.split(key, config.lifetime.scoring_episodes))
    return returns, jnp.mean(lasted)


def score_onward(config: InnerConfig, family: JaxFamily, task: Task, actor: Actor, env: EnvState, key: Key) -> Array:
    """Return the rewards of the steps that follow, one sum per time limit, [episodes]: the lifetime goes on."""
    episodes, number = config.lifetime.scoring_episodes, config.lifetime.updates
    action_key, reset_key = (stream_key(key, stream) for stream in (Stream.ACTION, Stream.RESET))
    fold = jax.random.fold_in
    draws = draw(family, task, fold(action_key, number), fold(reset_key, number + 1), episodes * family.horizon)
    _, (taken, _) = rollout(config.policy, family, task, actor, env, draws)
    return jnp.sum(taken.reward.reshape(episodes, family.horizon), axis=1)


def score_policy(config: InnerConfig, family: JaxFamily, task: Task, params: Params, key: Key) -> Array:
    """Return the scores of policy parameters as they are, [episodes]; nothing is trained."""
    actor = actor_of(params, begin(config, key, jnp.zeros(0)).normalizer.observation)
    return score(config, family, task, actor, config.policy.carry(), stream_key(key, Stream.SCORE))[0]
