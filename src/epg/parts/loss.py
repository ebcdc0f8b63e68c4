"""The learned loss L_phi: temporal convolutions over the window, memory, dense head (Eqs. 8 and 9, Fig. 2).

    rows [N, C]  : what changes from step to step (observation, action, end, policy mean or probabilities, ...)
    constants [K]: what is the same at every step of an update (memory, log-std, task features, progress)

The paper feeds both to every row. Constants are kept apart because a convolution of a constant needs no
convolution: its kernel is summed over time first, which saves most of the first layer's arithmetic.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.parts.policy import Categorical, Gaussian, distribution, products
from epg.words.keys import Key
from epg.words.records import Experience, Trained
from epg.words.settings import LossSettings, Spaces, require

SLOPE = 0.2  # of the leaky ReLU
LOG_STD_PULL = 0.05  # output weight of the unit that shrinks the log-std

SIDES = {1: np.zeros((1, 0)), 2: np.array([[1.0], [-1.0]]), 4: np.array([[1.0, 1], [-1, 1], [-1, -1], [1, -1]])}
"""Number of sides -> what the switches say on each: neighbours on the orbit differ in one of them."""


class Loss(eqx.Module):
    """Loss parameters, phi. Outside a lifetime they travel as one flat vector."""

    kernels: tuple[Array, ...]  # each [kernel, in, channels]; the first has in = C + K
    kernel_biases: tuple[Array, ...]  # each [channels]
    context: Array  # [channels, context], or [frames * channels, context] when flattened
    context_bias: Array  # [context]
    head: Array  # [C + K + context, hidden]
    head_bias: Array  # [hidden]
    output: Array  # [hidden]; no bias, a constant moves no gradient


def row_columns(settings: LossSettings, spaces: Spaces) -> dict[str, slice]:
    """Return where each declared input that changes with the step stands in a row."""
    widths = {"observation": spaces.observation, "action": spaces.action, "end": 1, "policy": spaces.action}
    if settings.reward:
        widths["reward"] = 1
    if settings.products:
        widths |= {"reward x observation": spaces.observation, "reward x trace": spaces.action}
    return _columns(widths)


def head_columns(settings: LossSettings, spaces: Spaces) -> dict[str, slice]:
    """Return where each declared input stands in a row as the head sees it: a row, and what only the head sees."""
    columns = row_columns(settings, spaces)
    if settings.pairs:
        width, pairs = _width(columns), spaces.observation * (spaces.observation + 1) // 2
        columns["observation pairs"] = slice(width, width + pairs)
    return columns


def constant_columns(settings: LossSettings, spaces: Spaces) -> dict[str, slice]:
    """Return where each declared input that is constant within an update stands."""
    widths = {"memory": settings.memory}
    if not spaces.discrete:
        widths["log_std"] = spaces.action
    if settings.task_features:
        require(spaces.features > 0, "loss.task_features is set, but the family has no task features.")
        widths["task_features"] = spaces.features
    if settings.progress:
        widths["progress"] = 2
    return _columns(widths)


def _columns(widths: dict[str, int]) -> dict[str, slice]:
    columns, start = {}, 0
    for name, width in widths.items():
        columns[name] = slice(start, start + width)
        start += width
    return columns


def _width(columns: dict[str, slice]) -> int:
    return max(column.stop for column in columns.values())


def init_memory(key: Key, settings: LossSettings) -> Array:
    """Draw fresh memory parameters [memory]: a layer fed with ones is a vector of biases."""
    return 0.1 * jax.random.normal(key, (settings.memory,))


def build_rows(settings: LossSettings, experience: Experience) -> Array:
    """Stack the declared inputs of each window position, [N, C]; zeros for the policy, the reward only if declared."""
    window = experience.window
    parts = [window.observation, window.action, window.end[:, None], jnp.zeros_like(window.action)]
    if settings.reward:
        parts.append(window.reward[:, None])
    if settings.products:
        parts.append(reward_products(experience))
    return jnp.concatenate(parts, axis=1)


def reward_products(experience: Experience) -> Array:
    """Return reward x observation and reward x trace at each window position, [N, O + A]."""
    reward = experience.window.reward[:, None]
    return jnp.concatenate([reward * experience.window.observation, reward * experience.trace], axis=1)


def head_rows(settings: LossSettings, rows: Array, observation: Array) -> Array:
    """Return rows as the head sees them, [B, C] -> [B, C + O (O + 1) / 2] with the products of observations."""
    if not settings.pairs:
        return rows
    return jnp.concatenate([rows, products(observation)], axis=1)


def build_constants(settings: LossSettings, experience: Experience, memory: Array, log_std: Array) -> Array:
    """Stack the declared inputs that are the same at every position, [K]."""
    parts = [jnp.tanh(memory), log_std]
    if settings.task_features:
        parts.append(experience.features)
    if settings.progress:
        parts.append(experience.progress)
    return jnp.concatenate(parts)


def convolve(x: Array, kernel: Array, stride: int) -> Array:
    """Convolve over time without padding, [T, in] * [kernel, in, out] -> [T', out].

    Cuts the input into blocks of `stride` rows and multiplies: under vmap with one kernel per lifetime this
    is a batched matrix product, where a grouped convolution would be slow on a CPU.
    """
    length, _, channels = kernel.shape
    frames = (x.shape[0] - length) // stride + 1
    out = jnp.zeros((frames, channels))
    for start in range(0, length, stride):
        width = min(stride, length - start)
        # The last block of the last frame may be shorter than a stride: pad, then drop what is not used.
        block = x[start : start + frames * stride]
        block = jnp.pad(block, ((0, frames * stride - block.shape[0]), (0, 0)))
        block = block.reshape(frames, stride, -1)[:, :width].reshape(frames, -1)
        out = out + block @ kernel[start : start + width].reshape(-1, channels)
    return out


def leaky_relu(x: Array) -> Array:
    """Return x where positive and 0.2 x elsewhere."""
    return jnp.where(x > 0, x, SLOPE * x)


class Fixed(NamedTuple):
    """What of a loss stays the same while a policy trains on it, and the weights by which the policy enters.

    The first convolution and the first layer of the head are linear in the rows, of which only the policy's outputs
    change from one gradient step to the next.
    """

    frames: Array  # [T', channels] the first convolution of all rows, the policy's columns left out
    policy_kernel: Array  # [kernel, A, channels] of these columns
    head_sums: Array  # [M, hidden] the head's first layer on the newest rows, the policy's columns left out
    policy_head: Array  # [A, hidden] of these columns


def fixed_part(loss: Loss, settings: LossSettings, spaces: Spaces, experience: Experience) -> Fixed:
    """Compute what all gradient steps of an update share."""
    rows, newest = build_rows(settings, experience), slice(-experience.reward.shape[0], None)
    judged = head_rows(settings, rows[newest], experience.window.observation[newest])
    policy, kernel = row_columns(settings, spaces)["policy"], loss.kernels[0]
    return Fixed(
        frames=convolve(rows, kernel[:, : rows.shape[1]], settings.strides[0]),
        policy_kernel=kernel[:, policy],
        head_sums=judged @ loss.head[: judged.shape[1]],
        policy_head=loss.head[policy],
    )


def context_vector(loss: Loss, settings: LossSettings, frames: Array, constants: Array) -> Array:
    """Run the temporal part (Eq. 9) on from the first convolution of the rows, [T', channels], [K] -> [context]."""
    everywhere = constants @ jnp.sum(loss.kernels[0][:, -constants.shape[0] :], axis=0)
    x = leaky_relu(frames + everywhere + loss.kernel_biases[0])
    for kernel, bias, stride in zip(loss.kernels[1:], loss.kernel_biases[1:], settings.strides[1:], strict=True):
        x = leaky_relu(convolve(x, kernel, stride) + bias)
    pooled = jnp.mean(x, axis=0) if settings.pooling == "mean" else x.reshape(-1)
    return leaky_relu(pooled @ loss.context + loss.context_bias)


def head_values(loss: Loss, sums: Array, constants: Array, context: Array) -> Array:
    """Return L_i (Eq. 8), [B, hidden] -> [B]; `sums` is the head's first layer on the rows alone, without bias."""
    shared = jnp.concatenate([constants, context])
    return leaky_relu(sums + shared @ loss.head[-shared.shape[0] :] + loss.head_bias) @ loss.output


def policy_rows(policy: Gaussian | Categorical, valid: Array) -> Array:
    """Return what changes with the observation in the policy's output: mean or probabilities; zero in padding."""
    return (policy.mean if isinstance(policy, Gaussian) else policy.output()) * valid[:, None]


def evaluate(
    loss: Loss,
    settings: LossSettings,
    fixed: Fixed,
    trained: Trained,
    experience: Experience,
    batch: Array,
    activation: str,
) -> Array:
    """Return the mean of L_i over the rows `batch` (indices into the newest M), differentiable in `trained`.

    The context sees the policy at every window position, so its gradient reaches theta from all of them.
    """
    policy, window = trained.policy, experience.window
    outputs = policy_rows(distribution(policy, window.observation, activation), window.valid)
    constants = build_constants(settings, experience, trained.extra, policy.log_std)
    frames = fixed.frames + convolve(outputs, fixed.policy_kernel, settings.strides[0])
    context = context_vector(loss, settings, frames, constants)
    newest = outputs[-fixed.head_sums.shape[0] :]
    sums = fixed.head_sums[batch] + newest[batch] @ fixed.policy_head
    return jnp.mean(head_values(loss, sums, constants, context))


def init_loss(key: Key, settings: LossSettings, spaces: Spaces) -> Loss:
    """Draw a first loss: plain random weights, or a target-action head on the same architecture."""
    keys = jax.random.split(key, len(settings.kernels) + 3)
    constants = _width(constant_columns(settings, spaces))
    inputs = _width(row_columns(settings, spaces)) + constants
    kernels, size = [], inputs
    for index, length in enumerate(settings.kernels):
        kernels.append(_scaled(keys[index], (length, size, settings.channels), length * size))
        size = settings.channels
    pooled = size if settings.pooling == "mean" else size * settings.frames
    head_inputs = _width(head_columns(settings, spaces)) + constants + settings.context
    loss = Loss(
        kernels=tuple(kernels),
        kernel_biases=tuple(jnp.zeros(settings.channels) for _ in kernels),
        context=_scaled(keys[-3], (pooled, settings.context), pooled),
        context_bias=jnp.zeros(settings.context),
        head=_scaled(keys[-2], (head_inputs, settings.hidden), head_inputs),
        head_bias=jnp.zeros(settings.hidden),
        output=_scaled(keys[-1], (settings.hidden,), settings.hidden),
    )
    if settings.init_temporal == "correlation":
        loss = _carry_products(keys[0], loss, settings, spaces)
    return loss if settings.init == "plain" else _aim_at_targets(keys[-2], loss, settings, spaces)


def _scaled(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    return jax.random.normal(key, shape) / jnp.sqrt(jnp.float32(fan_in))


def _aim_at_targets(key: Key, loss: Loss, settings: LossSettings, spaces: Spaces) -> Loss:
    """Replace the head so that L = 0.8 sum_j |m_j - target_j| + a pull that shrinks the log-std.

    Hidden units 2j and 2j+1 hold z_j and -z_j with z_j = m_j - target_j: leaky ReLUs of the two add up to
    0.8 |z_j|. m is the mean of a Gaussian policy, or the probabilities of a categorical one, whose targets
    start around the uniform distribution. With switches there are as many such targets as sides, one for each
    combination of their signs. The other units start silent (output weight zero).
    """
    sides = SIDES[settings.sides]
    actions, pairs = spaces.action, spaces.action * len(sides)
    needed = 2 * pairs + (not spaces.discrete)
    require(
        settings.hidden >= needed,
        f"loss.hidden must be at least {needed} for the target-action initialisation of this family, "
        f"not {settings.hidden}.",
    )
    columns, constants = head_columns(settings, spaces), constant_columns(settings, spaces)
    width = _width(columns)
    context = loss.head.shape[0] - settings.context
    scale = jnp.full(loss.head.shape[0], settings.init_scale)
    scale = scale.at[context:].set(settings.init_context_scale)
    target = scale[:, None] * jax.random.normal(key, (loss.head.shape[0], pairs))
    if settings.init_temporal == "correlation":
        carried = _carried(settings, spaces)
        units = context + 2 * jnp.arange(carried.first_trace, carried.first_trace + carried.traces)
        gain = settings.init_gain / (2.0 * (1.0 + SLOPE))  # undoes the context's leaky ReLU and its factor 2
        for side in range(len(sides)):
            known = side * actions + jnp.arange(carried.traces)
            target = target.at[units, known].add(gain).at[units + 1, known].add(-gain)
    target = target.at[columns["policy"]].set(0.0)
    if not spaces.discrete:  # a target that moved with the log-std would pull it either way
        log_std = slice(width + constants["log_std"].start, width + constants["log_std"].stop)
        target = target.at[log_std].set(0.0)
    z = jnp.zeros_like(target).at[columns["policy"]].set(jnp.tile(jnp.eye(actions), len(sides))) - target
    bias = jnp.full(pairs, -1.0 / spaces.action if spaces.discrete else 0.0)
    even, odd = 2 * jnp.arange(pairs), 2 * jnp.arange(pairs) + 1
    head = loss.head.at[:, even].set(z).at[:, odd].set(-z)
    head_bias = loss.head_bias.at[even].set(bias).at[odd].set(-bias)
    for switch, signs in enumerate(sides.T):
        # Both units of a pair lose gate (1 - side s): nothing when s = side, and when s = -side so much that
        # their slopes cancel wherever |z| < 2 gate. The switch s is (u - v - 1.2) / 0.8, see _carry_products.
        slope = settings.init_gate * jnp.repeat(jnp.array(signs, jnp.float32), 2 * actions) / (1.0 - SLOPE)
        u = context + 2 * switch
        head = head.at[u, : 2 * pairs].add(slope).at[u + 1, : 2 * pairs].add(-slope)
        head_bias = head_bias.at[: 2 * pairs].add(-settings.init_gate - slope * (1.0 + SLOPE))
    output = jnp.zeros_like(loss.output).at[: 2 * pairs].set(1.0)
    if not spaces.discrete:
        unit = jnp.zeros(head.shape[0]).at[log_std].set(1.0)
        head, output = head.at[:, 2 * pairs].set(unit), output.at[2 * pairs].set(LOG_STD_PULL)
    return eqx.tree_at(lambda it: (it.head, it.head_bias, it.output), loss, (head, head_bias, output))


def target_columns(settings: LossSettings, spaces: Spaces) -> np.ndarray:
    """Return the columns of the head on which a searched target may depend: the observation, and its products."""
    columns = head_columns(settings, spaces)
    names = [name for name in ("observation", "observation pairs") if name in columns]
    return np.concatenate([np.arange(columns[name].start, columns[name].stop) for name in names])


def aim(loss: Loss, weights: Array, settings: LossSettings, spaces: Spaces) -> Loss:
    """Move the targets of a target-action head by linear functions of the F target columns.

    `weights` are [sides, A (F + 1)]: one target, or one for each combination of the switches' signs.
    """
    seen = target_columns(settings, spaces)[:, None]
    rows = weights.reshape(settings.sides * spaces.action, len(seen) + 1)
    even = 2 * jnp.arange(len(rows))
    head = loss.head.at[seen, even].add(-rows[:, :-1].T).at[seen, even + 1].add(rows[:, :-1].T)
    bias = loss.head_bias.at[even].add(-rows[:, -1]).at[even + 1].add(rows[:, -1])
    return eqx.tree_at(lambda it: (it.head, it.head_bias), loss, (head, bias))


class Carried(NamedTuple):
    """Which correlations of the reward the temporal part starts with, in this order: one per pair of channels."""

    first_trace: int  # after the switches
    traces: int  # with the traces of actions
    mixes: int  # with random mixes of observations


def _carried(settings: LossSettings, spaces: Spaces) -> Carried:
    pairs = settings.channels // 2
    first = settings.switches
    traces = min(pairs - first, spaces.action)
    return Carried(first, traces, pairs - first - traces)


def _carry_products(key: Key, loss: Loss, settings: LossSettings, spaces: Spaces) -> Loss:
    """Replace the temporal part so that the context starts linear in the window's mean of the products.

    Normalised reward times normalised x, averaged over the window, is their correlation. Channels 2c and 2c+1
    hold +x_c and -x_c; since leaky(x) - leaky(-x) = 1.2 x, the next layer can pass a pair on exactly. The first
    pairs carry the reward's correlation with the trace of each action, the others random mixes of its correlation
    with the observation. Switches come before them: a correlation c, as the context's u = leaky(2 c + 1) and
    v = leaky(2 c - 1), so that u - v lies between 0.4 and 2 and says little but its sign. It is the one with an
    observation, or nothing before `set_switches`.
    """
    columns, carried = row_columns(settings, spaces), _carried(settings, spaces)
    traces, states = columns["reward x trace"], columns["reward x observation"]
    pairs, start = settings.channels // 2, carried.first_trace
    mixes = jax.random.normal(key, (spaces.observation, carried.mixes)) / spaces.observation**0.5
    first = jnp.zeros((loss.kernels[0].shape[1], pairs))
    first = first.at[traces, start : start + carried.traces].set(jnp.eye(spaces.action, carried.traces))
    first = first.at[states, pairs - carried.mixes :].set(mixes)
    if settings.init_switch is not None:
        require(
            settings.init_switch < spaces.observation,
            f"loss.init_switch must be below {spaces.observation}, the length of an observation.",
        )
        first = first.at[states.start + settings.init_switch, 0].set(1.0)
    # Divided by roots, not by lengths: weights far below sigma would drown in the noise of evolution.
    kernels = [
        jnp.zeros_like(loss.kernels[0]).at[:, :, : 2 * pairs].set(_both_signs(first)) / settings.kernels[0] ** 0.5
    ]
    for kernel, length in zip(loss.kernels[1:], settings.kernels[1:], strict=True):
        passing = jnp.zeros_like(kernel).at[:, : 2 * pairs, : 2 * pairs].set(_pass_on(pairs))
        kernels.append(passing / length**0.5)
    units = min(pairs, settings.context // 2)
    frames = loss.context.shape[0] // settings.channels
    passed = jnp.zeros((settings.channels, settings.context))
    passed = passed.at[: 2 * units, : 2 * units].set(_pass_on(units) / frames)
    bias = loss.context_bias
    for u in range(0, 2 * settings.switches, 2):
        passed, bias = passed.at[:, u + 1].set(passed[:, u]), bias.at[u : u + 2].set(jnp.array([1.0, -1.0]))
    roots = math.prod(settings.kernels) ** 0.5  # what the divisions above left: 2 x is again the correlation
    context = jnp.tile(2.0 / roots * passed, (frames, 1))
    return eqx.tree_at(lambda it: (it.kernels, it.context, it.context_bias), loss, (tuple(kernels), context, bias))


def set_switches(loss: Loss, weights: Array, settings: LossSettings, spaces: Spaces) -> Loss:
    """Let the switches carry these mixes [switches, O + A] of the reward's correlations with observation and trace."""
    columns = row_columns(settings, spaces)
    seen = np.arange(columns["reward x observation"].start, columns["reward x trace"].stop)
    carried = _both_signs(weights.T) / settings.kernels[0] ** 0.5
    first = loss.kernels[0].at[:, seen, : 2 * settings.switches].set(carried)
    return eqx.tree_at(lambda it: it.kernels, loss, (first, *loss.kernels[1:]))


def _both_signs(weights: Array) -> Array:
    """Interleave weights with their negatives along the last axis."""
    return jnp.stack([weights, -weights], axis=-1).reshape(*weights.shape[:-1], -1)


def _pass_on(pairs: int) -> Array:
    """Return [2 pairs, 2 pairs]: undo the leaky ReLU of each pair and give both signs again."""
    undo = jnp.repeat(jnp.eye(pairs), 2, axis=0) * jnp.tile(jnp.array([1.0, -1.0]), pairs)[:, None]
    return _both_signs(undo / (1.0 + SLOPE))
