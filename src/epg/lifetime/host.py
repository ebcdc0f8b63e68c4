"""The host driver: lifetimes of a family that is simulated outside JAX, a batch at a time (Algorithm 2).

A step is one call of the simulator and one of a compiled program that does all the rest. An update's random
numbers and fresh states are drawn before it, so that per step the host only hands arrays over.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.lifetime.between import Acting, Heard, Packing, actor_of, choose, first_row, react
from epg.lifetime.learner import Control
from epg.lifetime.update import Log, Plan, Report, Student, minibatches, outcome, start, update
from epg.parts.families.base import HostFamily, Simulator, Task, unstack
from epg.parts.policy import Policy, draw_noise
from epg.words.keys import Key, Stream, stream_key
from epg.words.records import Outcome
from epg.words.runtime import COMPILER

Watch = Callable[[int, Student], None]

TOGETHER = 8  # lifetimes at most whose updates are computed together: 4 to 16 were the fastest (docs/performance.md)

_compile = partial(jax.jit, compiler_options=COMPILER)


class Stage(NamedTuple):
    """Where a batch of S lifetimes takes place."""

    simulator: Simulator
    tasks: Task  # leaves [S, ...]
    keys: Key  # [S]


class Draws(NamedTuple):
    """What is random in the next T steps."""

    noise: Array  # [T, S, A]
    fresh: Array  # [T, S, F]


class Score(NamedTuple):
    """What the scoring trajectories gave."""

    returns: np.ndarray  # [S, episodes] undiscounted
    exploded: np.ndarray  # [S]
    steps: np.ndarray  # [S]


class Programs(NamedTuple):
    """What is compiled, each for a whole batch."""

    begin: Callable[..., Student]
    actor: Callable[..., Acting]
    noise: Callable[..., Array]
    fresh: Callable[..., Array]
    first: Callable[..., Array]
    choose: Callable[..., Array]
    react: Callable[..., Array]
    learn: Callable[..., tuple[Student, Report]]


class HostDriver:
    """The compiled programs for batches of S lifetimes of one family and plan."""

    def __init__(self, plan: Plan, family: HostFamily) -> None:
        self.plan, self.family = plan, family
        task = jax.eval_shape(family.sample, jax.random.key(0))
        raw = jax.ShapeDtypeStruct((family.width,), jnp.float32)
        self.packing = Packing(jax.eval_shape(partial(first_row, plan, family), task, raw))
        self.programs = Programs(
            begin=_compile(jax.vmap(partial(start, plan))),
            actor=_compile(jax.vmap(actor_of)),
            noise=_compile(self._noise, static_argnames="steps"),
            fresh=_compile(self._fresh, static_argnames="steps"),
            first=_compile(jax.vmap(lambda task, raw: self.packing.pack(first_row(plan, family, task, raw)))),
            choose=_compile(self._choose),
            react=_compile(self._react),
            learn=_compile(self._learn),
        )
        self._steps = [jnp.int32(step) for step in range(max(plan.lifetime.steps_per_update, family.horizon))]

    def run(self, keys: Key, tasks: Task, control: Control, watch: Watch | None = None) -> Outcome:
        """Train a fresh policy on each task for U steps, then score it; `watch` sees the students at every update."""
        stage = Stage(self.family.simulate(unstack(tasks, len(keys))), tasks, keys)
        students, features = self.programs.begin(keys), jax.vmap(self.family.features)(tasks)
        packed = self._start(stage, 0)
        ended, told, exploded = [], [], np.zeros(len(keys), np.int32)
        for index in range(self.plan.lifetime.updates):
            if watch is not None:
                watch(index, students)
            rows = self._simulate(stage, self.actors(students), packed, index)
            students, report = self.programs.learn(students, rows, features, control, keys, index)
            packed = rows[-1]
            ended.append(self.packing.part(rows[1:], "ended").T)
            exploded += (self.packing.part(rows[1:], "exploded") > 0).sum(axis=0, dtype=np.int32)
            told.append(report)
        if watch is not None:
            watch(self.plan.lifetime.updates, students)
        score = self.score(students, stage)
        log = Log(
            jnp.asarray(np.stack(ended, axis=1)),
            jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *told),
            jnp.asarray(score.returns),
            jnp.asarray(exploded + score.exploded),
            jnp.asarray(self.plan.lifetime.steps + score.steps),
        )
        return jax.vmap(outcome)(students, log)

    def try_out(self, keys: Key, tasks: Task, policies: Policy) -> Score:
        """Score policies as they are, nothing is trained."""
        stage = Stage(self.family.simulate(unstack(tasks, len(keys))), tasks, keys)
        students = eqx.tree_at(lambda it: it.trained.policy, self.programs.begin(keys), policies)
        return self.score(students, stage)

    def actors(self, students: Student) -> Acting:
        """Return what acts of a batch of students."""
        return self.programs.actor(students.trained.policy, students.normaliser.observation)

    def _start(self, stage: Stage, index: int | None) -> Array:
        """Begin the first episodes; no action is chosen yet."""
        fresh = self._draw_fresh(stage, index, steps=None)
        return self.programs.first(stage.tasks, stage.simulator.begin(fresh[0]))

    def _draw_fresh(self, stage: Stage, index: int | None, steps: int | None) -> np.ndarray:
        return stage.simulator.prepare(np.asarray(self.programs.fresh(stage.keys, stage.tasks, index, steps=steps)))

    def _simulate(self, stage: Stage, actor: Acting, packed: Array | np.ndarray, index: int) -> np.ndarray:
        """Act for the M steps of an update with fixed policies; return the rows around them, [M + 1, S, K]."""
        steps, simulator = self.plan.lifetime.steps_per_update, stage.simulator
        control, restart = self.packing.columns["control"], self.packing.columns["restart"].start
        fresh = self._draw_fresh(stage, index + 1, steps)
        draws = Draws(self.programs.noise(stage.keys, index, steps=steps), jnp.asarray(fresh))
        row = self.programs.choose(actor, stage.tasks, packed, draws.noise)
        seen = np.asarray(row)
        rows = np.empty((steps + 1, *seen.shape), np.float32)
        rows[0] = seen
        for step in range(steps):
            heard = simulator.advance(seen[:, control], fresh[step])
            row = self.programs.react(actor, stage.tasks, row, heard, draws, self._steps[step])
            seen = rows[step + 1] = np.asarray(row)
            again = seen[:, restart] > 0
            if again.any():
                simulator.restart(again, fresh[step])
        return rows

    def score(self, students: Student, stage: Stage) -> Score:
        """Run the scoring trajectories of all lifetimes at once; those that have ended are simulated no further."""
        episodes, part = self.plan.lifetime.scoring_episodes, self.packing.part
        shape = len(stage.keys), episodes
        split = jax.vmap(lambda key: jax.random.split(stream_key(key, Stream.SCORE), episodes))
        actor, tasks = jax.tree.map(
            lambda leaf: jnp.repeat(leaf, episodes, axis=0), (self.actors(students), stage.tasks)
        )
        stage = Stage(stage.simulator.repeat(episodes), tasks, split(stage.keys).reshape(-1))
        row, fresh = self._start(stage, None), self._draw_fresh(stage, None, steps=None)
        draws = Draws(self.programs.noise(stage.keys, None, steps=self.family.horizon), jnp.asarray(fresh))
        row = self.programs.choose(actor, tasks, row, draws.noise)
        total = np.zeros(len(stage.keys), np.float32)
        exploded, steps = np.zeros((2, len(stage.keys)), np.int32)
        alive = np.arange(len(stage.keys))
        for step in range(self.family.horizon):
            heard = stage.simulator.advance(part(np.asarray(row), "control"), fresh[0], alive)
            row = self.programs.react(actor, tasks, row, heard, draws, self._steps[step])
            seen = np.asarray(row)[alive]
            total[alive] += part(seen, "reward")
            steps[alive] += 1
            exploded[alive] += part(seen, "exploded") > 0
            alive = alive[np.isnan(part(seen, "ended"))]
            if not alive.size:
                break
        counts = (it.reshape(shape).sum(axis=1, dtype=np.int32) for it in (exploded, steps))
        return Score(total.reshape(shape), *counts)

    # The keys are those of the scan driver: both give the same lifetime.

    def _noise(self, keys: Key, index: Array | None, steps: int) -> Array:
        def one(key: Key) -> Array:
            return draw_noise(_numbered(stream_key(key, Stream.ACTION), index), self.plan.spaces, steps)

        return jax.vmap(one, out_axes=1)(keys)

    def _fresh(self, keys: Key, tasks: Task, index: Array | None, steps: int | None) -> Array:
        def one(key: Key, task: Task) -> Array:
            key = _numbered(stream_key(key, Stream.RESET), index)
            each = key[None] if steps is None else jax.random.split(key, steps)
            return jax.vmap(self.family.fresh, (0, None))(each, task)

        return jax.vmap(one, out_axes=1)(keys, tasks)

    def _choose(self, actor: Acting, tasks: Task, packed: Array, noise: Array) -> Array:
        def one(actor: Acting, task: Task, packed: Array, noise: Array) -> Array:
            row = self.packing.unpack(packed)
            return self.packing.pack(choose(self.plan, self.family, actor, task, row, noise))

        return jax.vmap(one)(actor, tasks, packed, noise[0])

    def _react(self, actor: Acting, tasks: Task, packed: Array, heard: Array, draws: Draws, step: Array) -> Array:
        def one(actor: Acting, task: Task, packed: Array, heard: Heard) -> Array:
            row = self.packing.unpack(packed)
            return self.packing.pack(react(self.plan, self.family, actor, task, row, heard))

        # The indices are clamped: the action after the last step is chosen anew, by the policy that comes then.
        fresh = jax.lax.dynamic_index_in_dim(draws.fresh, step, keepdims=False)
        noise = jax.lax.dynamic_index_in_dim(draws.noise, step + 1, keepdims=False)
        return jax.vmap(one)(actor, tasks, packed, Heard(heard, fresh, noise))

    def _learn(
        self, students: Student, rows: Array, features: Array, control: Control, keys: Key, index: Array
    ) -> tuple[Student, Report]:
        """Update all lifetimes, a few at a time: less passes through memory between the parts of an update.

        `lax.map` could make the groups itself, were no leaf without width. Shuffles are of all at once: many small ones
        would take longer.
        """
        number = len(keys)
        size = max(size for size in range(1, TOGETHER + 1) if number % size == 0)

        def shuffled(key: Key) -> Array:
            return minibatches(self.plan.lifetime, jax.random.fold_in(stream_key(key, Stream.SHUFFLE), index))

        def one(student: Student, rows: Array, features: Array, phi: Array, batches: Array) -> tuple[Student, Report]:
            rollout = self.packing.rollout(rows)
            return update(self.plan, student, rollout, features, Control(phi, control.alpha), batches)

        def some(first: Array) -> tuple[Student, Report]:
            def cut(tree: Any, axis: int = 0) -> Any:
                return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size, axis), tree)

            mine = cut(students), cut(rows, axis=1), cut(features), cut(control.phi), cut(batches)
            return jax.vmap(one, (0, 1, 0, 0, 0))(*mine)

        batches = jax.vmap(shuffled)(keys)
        groups = jax.lax.map(some, jnp.arange(0, number, size))
        return jax.tree.map(lambda leaf: leaf.reshape(number, *leaf.shape[2:]), groups)


def _numbered(key: Key, index: Array | None) -> Key:
    return key if index is None else jax.random.fold_in(key, index)
