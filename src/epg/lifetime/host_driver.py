"""The host driver: lifetimes of a family that is simulated outside JAX, a batch at a time (Algorithm 2)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key, Stream, stream_key
from epg.core.runtime import jit
from epg.core.types import LifetimeResult, MetaParams
from epg.families.base import HostFamily, Task
from epg.lifetime.env_step import Actor, actor_of, final_carry
from epg.lifetime.host_stepper import Batch, HostStepper
from epg.lifetime.update import (
    InnerConfig,
    LearnerState,
    LifetimeLog,
    UpdateStats,
    begin,
    minibatches,
    result_of,
    update,
)
from epg.policies.base import Params

OnUpdate = Callable[[int, LearnerState], None]

GROUP = 8  # most lifetimes whose updates are computed together: 4 to 16 were fastest (docs/performance.md)


class Scores(NamedTuple):
    """Results of the scoring trajectories."""

    returns: np.ndarray  # [S, episodes] undiscounted
    diverged: np.ndarray  # [S]
    steps: np.ndarray  # [S]


class HostDriver:
    """Runs batches of lifetimes of one family and inner configuration."""

    def __init__(self, config: InnerConfig, family: HostFamily) -> None:
        self.config, self.family = config, family
        self.stepper = HostStepper(config.policy, family)
        self._begin = jit(jax.vmap(partial(begin, config)))
        self._actors = jit(jax.vmap(actor_of))
        self._carries = jit(jax.vmap(self._carry_out))
        self._update = jit(self._update_all)

    def run(self, keys: Key, tasks: Task, meta: MetaParams, on_update: OnUpdate | None = None) -> LifetimeResult:
        """Train a policy on each task for U steps, then score it; `on_update` gets the states before every update.

        `meta` has one phi and one policy_init per lifetime, and one alpha.
        """
        stepper, lifetime = self.stepper, self.config.lifetime
        batch = stepper.batch(keys, tasks)
        learners, features = self._begin(keys, meta.policy_init), jax.vmap(self.family.features)(tasks)
        packed: Array | np.ndarray = stepper.begin(batch, stepper.draw_states(batch, 0, None)[0])
        returns, stats, diverged = [], [], np.zeros(len(keys), np.int32)
        reached: list[np.ndarray] = []
        for index in range(lifetime.updates):
            if on_update is not None:
                on_update(index, learners)
            states = self._act(batch, self.actors(learners), packed, index)
            learners, update_stats = self._update(learners, states, features, meta, keys, index)
            packed = states[-1]
            returns.append(stepper.packing.column(states[1:], "final_return").T)
            failed, ended = (stepper.packing.column(states[1:], it) > 0 for it in ("diverged", "terminated"))
            diverged += failed.sum(axis=0, dtype=np.int32)
            reached.append((ended & ~failed).sum(axis=0, dtype=np.int32))
            stats.append(update_stats)
        if on_update is not None:
            on_update(lifetime.updates, learners)
        scores = self._score_end(batch, self.actors(learners), packed)
        log = LifetimeLog(
            jnp.asarray(np.stack(returns, axis=1)),
            jnp.asarray(np.stack(reached, axis=1)),
            jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *stats),
            jnp.asarray(scores.returns),
            jnp.asarray(scores.steps / (lifetime.scoring_episodes * self.family.horizon), jnp.float32),
            jnp.asarray(diverged + scores.diverged),
            jnp.asarray(lifetime.steps + scores.steps),
        )
        return jax.vmap(result_of)(learners, log)

    def score_policies(self, keys: Key, tasks: Task, params: Params) -> Scores:
        """Score policy parameters [S, ...] as they are; nothing is trained."""
        fresh = self._begin(keys, jnp.zeros((len(keys), 0)))
        return self.score(self.stepper.batch(keys, tasks), self._actors(params, fresh.normalizer.observation))

    def actors(self, learners: LearnerState) -> Actor:
        """Return what acts, of a batch of lifetimes."""
        actor: Actor = self._actors(learners.params.policy, learners.normalizer.observation)
        return actor

    def _act(self, batch: Batch, actor: Actor, packed: Array | np.ndarray, index: int) -> np.ndarray:
        """Act for the M steps of an update with fixed policies; return the states around them, [M + 1, S, K]."""
        draws = self.stepper.draw(batch, index, self.config.lifetime.steps_per_update)
        return self.stepper.run(batch, actor, packed, draws)

    def _carry_out(self, packed: Array) -> Array:
        """Return the packed carry with which a lifetime is scored; of a feed-forward policy, nothing."""
        packing, state = self.stepper.packing, self.stepper.packing.unpack(packed)
        after = state._replace(carry=final_carry(self.config.policy, state))
        return packing.pack(after)[packing.columns["carry"]]

    def score(self, batch: Batch, actor: Actor, carry: Array | None = None) -> Scores:
        """Run the scoring trajectories of all lifetimes at once; those that have ended are simulated no further."""
        episodes, stepper = self.config.lifetime.scoring_episodes, self.stepper
        number, column = len(batch.keys) * episodes, stepper.packing.column
        split = jax.vmap(lambda key: jax.random.split(stream_key(key, Stream.SCORE), episodes))
        actor, tasks = jax.tree.map(lambda leaf: jnp.repeat(leaf, episodes, axis=0), (actor, batch.tasks))
        batch = Batch(batch.simulator.repeat(episodes), tasks, split(batch.keys).reshape(-1))
        draws = stepper.draw(batch, None, self.family.horizon)
        total = np.zeros(number, np.float32)
        diverged, steps = np.zeros((2, number), np.int32)
        alive = np.arange(number)
        first = stepper.begin(batch, draws.reset_state(0))
        if carry is not None and carry.size:
            first = first.at[:, stepper.packing.columns["carry"]].set(jnp.repeat(carry, episodes, axis=0))
        loop = stepper.steps(batch, actor, first, draws, alive)
        next(loop)
        for seen in loop:
            rows = seen[alive]
            total[alive] += column(rows, "reward")
            steps[alive] += 1
            diverged[alive] += column(rows, "diverged") > 0
            alive = alive[np.isnan(column(rows, "final_return"))]
        shape = len(total) // episodes, episodes
        counts = (it.reshape(shape).sum(axis=1, dtype=np.int32) for it in (diverged, steps))
        return Scores(total.reshape(shape), *counts)

    def _score_end(self, batch: Batch, actor: Actor, packed: Array | np.ndarray) -> Scores:
        """Score lifetimes at their end: on fresh episodes or, without resets, as they go on."""
        if self.family.resets:
            return self.score(batch, actor, self._carries(packed))
        lifetime, horizon = self.config.lifetime, self.family.horizon
        steps = lifetime.scoring_episodes * horizon
        states = self.stepper.run(batch, actor, packed, self.stepper.draw(batch, lifetime.updates, steps))[1:]
        rewards, failed = (self.stepper.packing.column(states, it) for it in ("reward", "diverged"))
        returns = rewards.reshape(lifetime.scoring_episodes, horizon, -1).sum(axis=1).T
        return Scores(returns, (failed > 0).sum(axis=0, dtype=np.int32), np.full(len(batch.keys), steps, np.int32))

    def _update_all(
        self, learners: LearnerState, states: Array, features: Array, meta: MetaParams, keys: Key, index: Array
    ) -> tuple[LearnerState, UpdateStats]:
        """Update all lifetimes, a group at a time, so that a group's data stays in the cache.

        `lax.map` could make the groups itself if no leaf had size zero. All shuffles are drawn at once: many small
        draws would take longer.
        """
        number = len(keys)
        size = max(size for size in range(1, GROUP + 1) if number % size == 0)

        def shuffled(key: Key) -> Array:
            return minibatches(self.config.lifetime, jax.random.fold_in(stream_key(key, Stream.SHUFFLE), index))

        def one(learner: LearnerState, states: Array, features: Array, phi: Array, batches: Array) -> tuple:
            rollout = self.stepper.packing.rollout(states)
            return update(self.config, learner, rollout, features, meta._replace(phi=phi), batches)

        def group(first: Array) -> tuple[LearnerState, UpdateStats]:
            def cut(tree: Any, axis: int = 0) -> Any:
                return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size, axis), tree)

            own = cut(learners), cut(states, axis=1), cut(features), cut(meta.phi), cut(batches)
            return jax.vmap(one, (0, 1, 0, 0, 0))(*own)

        batches = jax.vmap(shuffled)(keys)
        groups = jax.lax.map(group, jnp.arange(0, number, size))
        return jax.tree.map(lambda leaf: leaf.reshape(number, *leaf.shape[2:]), groups)
