"""Initial weights of the learned loss: random, or a head that starts as the distance to a target action."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from epg.core.errors import require
from epg.core.rng import Key
from epg.core.spaces import Spaces
from epg.loss.inputs import constant_columns, head_columns, row_columns, width_of
from epg.loss.modulation import StatisticsScale, init_mixes
from epg.loss.network import MEMORY_INPUTS, Loss
from epg.settings import LossSettings

TARGET_SCALE = 0.02  # standard deviation of the initial target action's weights
LOG_STD_WEIGHT = 0.05  # output weight of the unit that shrinks the log-std
MEMORY_SCALE = 0.1  # standard deviation of the memory's initial pre-activations


def init_loss(key: Key, settings: LossSettings, spaces: Spaces, scale: StatisticsScale | None = None) -> Loss:
    """Draw an initial loss; `scale` is that of the window's statistics over the family's tasks, if they are mixed."""
    keys = jax.random.split(key, len(settings.kernels) + 3)
    constants = constant_columns(settings, spaces)
    inputs = width_of(row_columns(settings, spaces)) + width_of(constants)
    if settings.temporal == "experience":
        trained = ("memory", "log_std")
        inputs -= spaces.action + sum(it.stop - it.start for name, it in constants.items() if name in trained)
    kernels, size = [], inputs
    for index, length in enumerate(settings.kernels if settings.temporal != "none" else ()):
        kernels.append(_normal(keys[index], (length, size, settings.channels), length * size))
        size = settings.channels
    pooled = size if settings.context_size else 0
    head_inputs = width_of(head_columns(settings, spaces)) + width_of(constants) + settings.context_size
    mixes, mix_bias = init_mixes(jax.random.fold_in(key, 1), settings, spaces, scale)
    loss = Loss(
        kernels=tuple(kernels),
        kernel_biases=tuple(jnp.zeros(settings.channels) for _ in kernels),
        context=_normal(keys[-3], (pooled, settings.context_size), max(1, pooled)),
        context_bias=jnp.zeros(settings.context_size),
        mixes=mixes,
        mix_bias=mix_bias,
        head=_normal(keys[-2], (head_inputs, settings.hidden), head_inputs),
        head_bias=jnp.zeros(settings.hidden),
        output=_normal(keys[-1], (settings.hidden,), settings.hidden),
    )
    return loss if settings.init == "random" else _target_action_head(keys[-2], loss, settings, spaces)


def init_memory(key: Key, settings: LossSettings) -> Array:
    """Draw fresh memory parameters, [memory]."""
    return MEMORY_SCALE / MEMORY_INPUTS * jax.random.normal(key, (settings.memory,))


def _normal(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    return jax.random.normal(key, shape) / jnp.sqrt(jnp.float32(fan_in))


def _target_action_head(key: Key, loss: Loss, settings: LossSettings, spaces: Spaces) -> Loss:
    """Replace the head so that L = 0.8 sum_j |m_j - target_j| + a term that shrinks the log-std.

    Hidden units 2j and 2j+1 hold z_j and -z_j with z_j = m_j - target_j: leaky ReLUs of the two add up to 0.8 |z_j|.
    m is the mean of a Gaussian policy, or the probabilities of a categorical one, whose targets
    start around the uniform distribution. Targets start as tiny random functions of what the head sees. The other
    units start with output weight zero.
    """
    actions = spaces.action
    needed = 2 * actions + (not spaces.discrete)
    require(
        settings.hidden >= needed,
        f"loss.hidden must be at least {needed} for the target-action initialisation of this family, "
        f"not {settings.hidden}.",
    )
    columns, constants = head_columns(settings, spaces), constant_columns(settings, spaces)
    target = TARGET_SCALE * jax.random.normal(key, (loss.head.shape[0], actions))
    target = target.at[columns["policy"]].set(0.0)
    if not spaces.discrete:  # a target that depends on the log-std would pull it up or down
        start = width_of(columns) + constants["log_std"].start
        log_std = slice(start, start + actions)
        target = target.at[log_std].set(0.0)
    z = jnp.zeros_like(target).at[columns["policy"]].set(jnp.eye(actions)) - target
    bias = jnp.full(actions, -1.0 / actions if spaces.discrete else 0.0)
    even, odd = 2 * jnp.arange(actions), 2 * jnp.arange(actions) + 1
    head = loss.head.at[:, even].set(z).at[:, odd].set(-z)
    head_bias = loss.head_bias.at[even].set(bias).at[odd].set(-bias)
    output = jnp.zeros_like(loss.output).at[: 2 * actions].set(1.0)
    if not spaces.discrete:
        unit = jnp.zeros(head.shape[0]).at[log_std].set(1.0)
        head, output = head.at[:, 2 * actions].set(unit), output.at[2 * actions].set(LOG_STD_WEIGHT)
    return eqx.tree_at(lambda it: (it.head, it.head_bias, it.output), loss, (head, head_bias, output))


def shift_targets(loss: Loss, weights: Array, settings: LossSettings, spaces: Spaces) -> Loss:
    """Add linear functions of the observation (and its products) to the targets of a target-action head.

    `weights` are [A, F + 1]: one row per action, the last column is a bias; F counts the observation and, if the loss
    sees them, its products.
    """
    columns = head_columns(settings, spaces)
    names = [name for name in ("observation", "observation products") if name in columns]
    seen = jnp.concatenate([jnp.arange(columns[name].start, columns[name].stop) for name in names])[:, None]
    require(
        weights.shape == (spaces.action, len(seen) + 1),
        f"a target needs {spaces.action} x {len(seen) + 1} weights, not {' x '.join(map(str, weights.shape))}.",
    )
    even = 2 * jnp.arange(spaces.action)
    head = loss.head.at[seen, even].add(-weights[:, :-1].T).at[seen, even + 1].add(weights[:, :-1].T)
    bias = loss.head_bias.at[even].add(-weights[:, -1]).at[even + 1].add(weights[:, -1])
    return eqx.tree_at(lambda it: (it.head, it.head_bias), loss, (head, bias))
