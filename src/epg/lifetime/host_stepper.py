"""The stepping loop of families simulated outside JAX: one call of the simulator and one compiled program per step.

Training, scoring, filming, the Gymnasium environments, the checker and the benchmarks all step through `steps`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key, Stream, stream_key
from epg.core.runtime import jit
from epg.families.base import HostFamily, Task, unstack
from epg.lifetime.env_step import Actor, Packing, StepInput, act, env_step, initial_env_state
from epg.policies.base import Policy
from epg.policies.distributions import draw_noise
from epg.simulators.base import Simulator


class Batch(NamedTuple):
    """S lifetimes that are simulated together."""

    simulator: Simulator
    tasks: Task  # leaves [S, ...]
    keys: Key  # [S]


class Draws(NamedTuple):
    """The random numbers of the next T steps."""

    noise: Array | np.ndarray  # [T, S, A]
    reset_states: np.ndarray  # [T, S, F], or [1, S, F] if all steps share them

    def reset_state(self, step: int) -> np.ndarray:
        """Return where episodes that end at this step continue."""
        return self.reset_states[min(step, len(self.reset_states) - 1)]


class Programs(NamedTuple):
    """What is compiled, each for a whole batch."""

    noise: Callable[..., Array]
    initial_states: Callable[..., Array]
    begin: Callable[..., Array]
    act: Callable[..., Array | np.ndarray]
    step: Callable[..., Array]


class HostStepper:
    """Steps batches of one family with one policy. States travel packed, [S, K]."""

    def __init__(self, policy: Policy, family: HostFamily) -> None:
        self.policy, self.family = policy, family
        task = jax.eval_shape(family.sample, jax.random.key(0))
        readout = jax.ShapeDtypeStruct((family.readout_size,), jnp.float32)
        self.packing = Packing(jax.eval_shape(partial(initial_env_state, policy, family), task, readout))
        self.programs = Programs(
            noise=jit(self._noise, static_argnames="steps"),
            initial_states=jit(self._initial_states, static_argnames="steps"),
            begin=jit(jax.vmap(self._begin)),
            act=jit(self._act),
            step=jit(self._step),
        )
        self._indices: list[Array] = []

    def batch(self, keys: Key, tasks: Task) -> Batch:
        """Build the simulator of a batch of tasks."""
        return Batch(self.family.simulate(unstack(tasks, len(keys))), tasks, keys)

    def draw(self, batch: Batch, index: int | None, steps: int) -> Draws:
        """Draw the random numbers of the steps before update `index` (None: of a scoring trajectory)."""
        reset_states = self.draw_states(batch, None if index is None else index + 1, None if index is None else steps)
        return Draws(self.programs.noise(batch.keys, index, steps=steps), reset_states)

    def draw_states(self, batch: Batch, index: int | None, steps: int | None) -> np.ndarray:
        """Draw first states of episodes, [steps, S, F]; None: one of each."""
        drawn = np.asarray(self.programs.initial_states(batch.keys, batch.tasks, index, steps=steps))
        return batch.simulator.prepare(drawn)

    def begin(self, batch: Batch, states: np.ndarray) -> Array:
        """Begin the first episodes at these states [S, F]; no action is chosen yet."""
        return self.programs.begin(batch.tasks, batch.simulator.begin(states))

    def run(self, batch: Batch, actor: Actor, packed: Array | np.ndarray, draws: Draws) -> np.ndarray:
        """Act for T steps with fixed policies; return the states around them, [T + 1, S, K]."""
        states: np.ndarray | None = None
        for number, seen in enumerate(self.steps(batch, actor, packed, draws)):
            if states is None:
                states = np.empty((len(draws.noise) + 1, *seen.shape), np.float32)
            states[number] = seen
        assert states is not None
        return states

    def steps(
        self,
        batch: Batch,
        actor: Actor,
        packed: Array | np.ndarray,
        draws: Draws,
        alive: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield the packed states before the first step and after each of the T steps.

        `alive` are row numbers: only these are simulated, and a row whose episode has ended is dropped from them; the
        loop ends with the last one. Without it all rows go on, reset where an episode has ended.
        """
        ctrl, reset = self.packing.columns["ctrl"], self.packing.columns["reset"].start
        state = self.programs.act(actor, batch.tasks, packed, draws.noise[0])
        seen = np.asarray(state)
        yield seen
        # Transferred once for all steps; those of a single step travel with its call, which is faster.
        states = jnp.asarray(draws.reset_states) if len(draws.noise) > 1 else draws.reset_states
        device_draws = (draws.noise, states)
        for step in range(len(draws.noise)):
            if alive is not None and not alive.size:
                return
            readout = batch.simulator.advance(seen[:, ctrl], draws.reset_state(step), alive)
            state = self.programs.step(actor, batch.tasks, state, readout, device_draws, self._index(step))
            seen = np.asarray(state)
            yield seen
            if alive is not None:
                alive = alive[np.isnan(self.packing.column(seen[alive], "final_return"))]
                continue
            again = seen[:, reset] > 0
            if again.any():
                batch.simulator.reset(again, draws.reset_state(step))

    def _index(self, step: int) -> Array:
        while len(self._indices) <= step:
            self._indices.append(jnp.int32(len(self._indices)))
        return self._indices[step]

    # The keys are those of the scan driver: both give the same lifetime.

    def _noise(self, keys: Key, index: Array | None, steps: int) -> Array:
        def one(key: Key) -> Array:
            return draw_noise(_numbered(stream_key(key, Stream.ACTION), index), self.family.spaces, steps)

        return jax.vmap(one, out_axes=1)(keys)

    def _initial_states(self, keys: Key, tasks: Task, index: Array | None, steps: int | None) -> Array:
        def one(key: Key, task: Task) -> Array:
            key = _numbered(stream_key(key, Stream.RESET), index)
            each = key[None] if steps is None else jax.random.split(key, steps)
            return jax.vmap(self.family.initial_state, (0, None))(each, task)

        return jax.vmap(one, out_axes=1)(keys, tasks)

    def _begin(self, task: Task, readout: Array) -> Array:
        return self.packing.pack(initial_env_state(self.policy, self.family, task, readout))

    def _act(self, actor: Actor, tasks: Task, packed: Array, noise: Array) -> Array:
        def one(actor: Actor, task: Task, packed: Array, noise: Array) -> Array:
            state = self.packing.unpack(packed)
            return self.packing.pack(act(self.policy, self.family, actor, task, state, noise))

        return jax.vmap(one)(actor, tasks, packed, noise)

    def _step(
        self, actor: Actor, tasks: Task, packed: Array, readout: Array, draws: tuple[Array, Array], step: Array
    ) -> Array:
        def one(actor: Actor, task: Task, packed: Array, given: StepInput) -> Array:
            state = self.packing.unpack(packed)
            return self.packing.pack(env_step(self.policy, self.family, actor, task, state, given))

        # Indices are clamped: the action after the last step is chosen again, by the policy that acts then.
        reset_state = jax.lax.dynamic_index_in_dim(draws[1], step, keepdims=False)
        noise = jax.lax.dynamic_index_in_dim(draws[0], step + 1, keepdims=False)
        return jax.vmap(one)(actor, tasks, packed, StepInput(readout, reset_state, noise))


def _numbered(key: Key, index: Array | None) -> Key:
    return key if index is None else jax.random.fold_in(key, index)
