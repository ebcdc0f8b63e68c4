"""The paper's policy: an MLP that outputs a Gaussian with a learned log-std vector, or a categorical distribution."""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.policies.base import FeedForward
from epg.policies.distributions import Categorical, Distribution, Gaussian
from epg.settings import PolicySettings

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "elu": jax.nn.elu, "silu": jax.nn.silu}
OUTPUT_NORM = 0.01  # of each output unit's initial weights: a fresh policy hardly depends on its observation
NARROW = 16  # layers with fewer outputs compute their weight gradient transposed, see multiply


class Mlp(NamedTuple):
    """Weights of a multi-layer perceptron. A tuple: JAX flattens it faster than a module at every step."""

    weights: tuple[Array, ...]  # each [in, out]: gradients are twice as fast as with [out, in]
    biases: tuple[Array, ...]  # each [out]


class MlpPolicyParams(NamedTuple):
    """Policy parameters, theta."""

    mlp: Mlp
    log_std: Array  # [A], or [0] when discrete


def init_mlp(key: Key, sizes: tuple[int, ...], output_norm: float) -> Mlp:
    """Draw weights of norm 1 into each unit (`output_norm` in the last layer); biases are zero."""
    weights = []
    for index, (size_in, size_out) in enumerate(itertools.pairwise(sizes)):
        row = jax.random.normal(jax.random.fold_in(key, index), (size_out, size_in))
        norm = output_norm if index == len(sizes) - 2 else 1.0
        weights.append((norm * row / jnp.linalg.norm(row, axis=1, keepdims=True)).T)
    return Mlp(tuple(weights), tuple(jnp.zeros(size) for size in sizes[1:]))


def apply_mlp(mlp: Mlp, x: Array, activation: str) -> Array:
    """Apply to the last axis of `x`."""
    function = ACTIVATIONS[activation]
    for weight, bias in zip(mlp.weights[:-1], mlp.biases[:-1], strict=True):
        x = function(multiply(x, weight) + bias)
    return multiply(x, mlp.weights[-1]) + mlp.biases[-1]


@jax.custom_vjp
def multiply(x: Array, weight: Array) -> Array:
    """Return x @ weight, [..., in] -> [..., out], with a weight gradient that is fast on XLA's CPU backend.

    The weight gradient x.T @ g is the slowest product there (docs/performance.md). Transposing a copy of x first, or
    transposing the result, is faster; barriers keep XLA from undoing it. The price: no forward-mode derivatives.
    """
    return x @ weight


def _multiply_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _multiply_backward(saved: tuple[Array, Array], grad: Array) -> tuple[Array, Array]:
    x, weight = saved
    rows, grads = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
    if weight.shape[1] < NARROW:
        weight_grad = jax.lax.optimization_barrier(grads.T @ rows).T
    else:
        weight_grad = jax.lax.optimization_barrier(rows.T) @ grads
    return grad @ weight.T, weight_grad


multiply.defvjp(_multiply_forward, _multiply_backward)


@dataclass(frozen=True)
class MlpPolicy(FeedForward):
    """A feed-forward policy: nothing is carried from step to step."""

    settings: PolicySettings
    spaces: Spaces

    def init(self, key: Key) -> MlpPolicyParams:
        """Draw a fresh policy."""
        sizes = (self.spaces.observation, *self.settings.hidden, self.spaces.action)
        number = 0 if self.spaces.discrete else self.spaces.action
        # With its dtype: a weakly typed leaf would have the first update compiled twice.
        log_std = jnp.full(number, self.settings.log_std, jnp.float32)
        return MlpPolicyParams(init_mlp(key, sizes, OUTPUT_NORM), log_std)

    def apply(self, params: MlpPolicyParams, carry: tuple[()], observation: Array) -> tuple[Distribution, tuple[()]]:
        """Return the action distribution at each observation, [..., O] -> [..., A]."""
        out = apply_mlp(params.mlp, observation, self.settings.activation)
        return (Gaussian(out, params.log_std) if params.log_std.size else Categorical(out)), carry
