"""Policies: MLPs that give a Gaussian with a learned log-std vector, or a categorical distribution.

`output` is what a learned loss sees of the policy at one observation: mean and log-std, or probabilities.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from epg.words.keys import Key
from epg.words.settings import PolicySettings, Spaces

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, "elu": jax.nn.elu, "silu": jax.nn.silu}
LOG_TWO_PI = 1.8378770664093453
FEW = 16  # a layer with fewer outputs has its gradient computed turned, see multiply


class Mlp(eqx.Module):
    """Weights of a multi-layer perceptron."""

    weights: tuple[Array, ...]  # each [in, out]: their gradients take half the time of [out, in]'s
    biases: tuple[Array, ...]  # each [out]


class Policy(eqx.Module):
    """Policy parameters, theta."""

    mlp: Mlp
    log_std: Array  # [A], or [0] when discrete


def init_mlp(key: Key, sizes: tuple[int, ...], output_norm: float) -> Mlp:
    """Draw weights of norm 1 into each unit (`output_norm` in the last layer); biases start at zero."""
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
    """Return x @ weight, [..., in] -> [..., out], with a gradient in an order of operations that XLA's CPU does fast.

    The weight's gradient is rows.T @ slopes, of all products the slowest there (docs/performance.md). A copy of the
    rows turned first, or the result turned afterwards, takes less time; the barriers keep XLA from undoing it. The
    price: no forward-mode derivatives.
    """
    return x @ weight


def _multiply_forwards(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _multiply_backwards(saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, weight = saved
    rows, slopes = x.reshape(-1, x.shape[-1]), slope.reshape(-1, slope.shape[-1])
    if weight.shape[1] < FEW:
        gradient = jax.lax.optimization_barrier(slopes.T @ rows).T
    else:
        gradient = jax.lax.optimization_barrier(rows.T) @ slopes
    return slope @ weight.T, gradient


multiply.defvjp(_multiply_forwards, _multiply_backwards)


def init_policy(key: Key, settings: PolicySettings, spaces: Spaces) -> Policy:
    """Draw a fresh policy that acts almost independently of its observation."""
    mlp = init_mlp(key, (spaces.observation, *settings.hidden, spaces.action), output_norm=0.01)
    log_std = jnp.zeros(0) if spaces.discrete else jnp.full(spaces.action, settings.log_std)
    return Policy(mlp, log_std)


def linear_policy(weights: Array, settings: PolicySettings, spaces: Spaces) -> Policy:
    """Return a policy whose mean is linear in what it sees, from [A (F + 1)] weights, each row ending in a bias.

    It sees F = O numbers, the observation, or its products too.
    """
    rows = weights.reshape(spaces.action, -1)
    return Policy(Mlp((rows[:, :-1].T,), (rows[:, -1],)), jnp.full(spaces.action, settings.log_std))


def products(observation: Array) -> Array:
    """Return the products of all pairs of an observation's components, [..., O] -> [..., O (O + 1) / 2]."""
    first, second = jnp.triu_indices(observation.shape[-1])
    return observation[..., first] * observation[..., second]


class Gaussian(eqx.Module):
    """Independent normal distributions over the action's components."""

    mean: Array  # [..., A]
    log_std: Array  # [A]

    def sample(self, noise: Array) -> Array:
        """Turn standard normal noise of the mean's shape into an action."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """Return the log density of `action`."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2 + 2.0 * self.log_std + LOG_TWO_PI, axis=-1)

    def entropy(self) -> Array:
        """Return the differential entropy at each observation."""
        one = jnp.sum(self.log_std + 0.5 * (1.0 + LOG_TWO_PI))
        return jnp.broadcast_to(one, self.mean.shape[:-1])

    def kl(self, other: "Gaussian") -> Array:
        """Return KL(self || other)."""
        ratio = jnp.exp(2.0 * (self.log_std - other.log_std))
        shift = ((self.mean - other.mean) * jnp.exp(-other.log_std)) ** 2
        return 0.5 * jnp.sum(ratio + shift - 1.0 - 2.0 * (self.log_std - other.log_std), axis=-1)

    def output(self) -> Array:
        """Return mean and log-std side by side."""
        return jnp.concatenate([self.mean, jnp.broadcast_to(self.log_std, self.mean.shape)], axis=-1)


class Categorical(eqx.Module):
    """A distribution over choices."""

    logits: Array  # [..., A]

    def sample(self, noise: Array) -> Array:
        """Turn standard Gumbel noise of the logits' shape into a choice."""
        return jnp.argmax(self.logits + noise, axis=-1)

    def log_prob(self, action: Array) -> Array:
        """Return the log probability of the choice `action`."""
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.sum(log_p * jax.nn.one_hot(action, log_p.shape[-1]), axis=-1)

    def entropy(self) -> Array:
        """Return the entropy at each observation."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    def kl(self, other: "Categorical") -> Array:
        """Return KL(self || other)."""
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

    def output(self) -> Array:
        """Return the probabilities."""
        return jax.nn.softmax(self.logits)


def distribution(policy: Policy, observation: Array, activation: str) -> Gaussian | Categorical:
    """Return the action distribution at each observation, [..., O] -> [..., A].

    A policy with more inputs than an observation has components sees its products too.
    """
    if policy.mlp.weights[0].shape[0] > observation.shape[-1]:
        observation = jnp.concatenate([observation, products(observation)], axis=-1)
    out = apply_mlp(policy.mlp, observation, activation)
    return Gaussian(out, policy.log_std) if policy.log_std.size else Categorical(out)


def draw_noise(key: Key, spaces: Spaces, steps: int) -> Array:
    """Draw the noise that `steps` calls of `sample` need, all at once."""
    draw = jax.random.gumbel if spaces.discrete else jax.random.normal
    return draw(key, (steps, spaces.action))
