"""The policy of RL² (Duan et al. 2016): a GRU that sees its previous action, reward and end, below an MLP.

Its state is kept across episodes of a lifetime: what was learned about the task lies in it, not in the weights.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.policies.distributions import Categorical, Distribution, Gaussian
from epg.policies.mlp import OUTPUT_NORM, Mlp, apply_mlp, init_mlp, multiply
from epg.settings import PolicySettings


class Gru(NamedTuple):
    """Weights of a gated recurrent unit (Cho et al. 2014): reset gate, update gate and candidate side by side."""

    inputs: Array  # [I, 3 H]
    state: Array  # [H, 3 H]
    bias: Array  # [3 H]


class RecurrentParams(NamedTuple):
    """Policy parameters, theta."""

    gru: Gru
    mlp: Mlp  # from observation and GRU state to the action distribution
    log_std: Array  # [A], or [0] when discrete


class RecurrentCarry(NamedTuple):
    """What the policy remembers."""

    before: Array  # [H] GRU state before the current observation
    after: Array  # [H] and after it
    action: Array  # [A] previous action, one-hot when discrete; zero at the start of a lifetime, like the next two
    reward: Array  # previous reward
    done: Array  # 1 if the previous step ended an episode


def init_gru(key: Key, size_in: int, size: int) -> Gru:
    """Draw weights of norm 1 into each unit, from the inputs and from the state; biases are zero."""
    inputs, state = (
        init_mlp(jax.random.fold_in(key, index), (it, 3 * size), 1.0) for index, it in ((0, size_in), (1, size))
    )
    return Gru(inputs.weights[0], state.weights[0], jnp.zeros(3 * size))


def apply_gru(gru: Gru, state: Array, inputs: Array) -> Array:
    """Return the next state, [..., H]."""
    from_inputs = multiply(inputs, gru.inputs) + gru.bias
    from_state = multiply(state, gru.state)
    reset, update, candidate = jnp.split(from_inputs, 3, axis=-1)
    reset_state, update_state, candidate_state = jnp.split(from_state, 3, axis=-1)
    keep = jax.nn.sigmoid(update + update_state)
    new = jnp.tanh(candidate + jax.nn.sigmoid(reset + reset_state) * candidate_state)
    return keep * state + (1.0 - keep) * new


@dataclass(frozen=True)
class RecurrentPolicy:
    """A GRU below the paper's policy."""

    settings: PolicySettings
    spaces: Spaces
    units: int
    """H: units of the GRU."""

    def init(self, key: Key) -> RecurrentParams:
        """Draw a fresh policy."""
        spaces, (gru, mlp) = self.spaces, jax.random.split(key)
        sizes = (spaces.observation + self.units, *self.settings.hidden, spaces.action)
        log_std = jnp.full(0 if spaces.discrete else spaces.action, self.settings.log_std, jnp.float32)
        inputs = spaces.observation + spaces.action + 2
        return RecurrentParams(init_gru(gru, inputs, self.units), init_mlp(mlp, sizes, OUTPUT_NORM), log_std)

    def carry(self) -> RecurrentCarry:
        """Return a memory of nothing."""
        zero, state = jnp.zeros(()), jnp.zeros(self.units)
        return RecurrentCarry(state, state, jnp.zeros(self.spaces.action), zero, zero)

    def apply(
        self, params: RecurrentParams, carry: RecurrentCarry, observation: Array
    ) -> tuple[Distribution, RecurrentCarry]:
        """Return the action distribution, and the carry with the GRU state after this observation."""
        previous = jnp.concatenate([carry.action, carry.reward[..., None], carry.done[..., None]], axis=-1)
        previous = jnp.broadcast_to(previous, (*observation.shape[:-1], previous.shape[-1]))
        after = apply_gru(params.gru, carry.before, jnp.concatenate([observation, previous], axis=-1))
        out = apply_mlp(params.mlp, jnp.concatenate([observation, after], axis=-1), self.settings.activation)
        return (Gaussian(out, params.log_std) if params.log_std.size else Categorical(out)), carry._replace(after=after)

    def remember(self, carry: RecurrentCarry, action: Array, reward: Array, done: Array) -> RecurrentCarry:
        """Move on: the state after this observation is the one before the next."""
        rows = jax.nn.one_hot(action, self.spaces.action) if self.spaces.discrete else action
        return RecurrentCarry(carry.after, carry.after, rows, reward, done.astype(jnp.float32))
