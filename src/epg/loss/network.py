"""The network of the learned loss L_phi: temporal convolutions over the window, context, dense head (Fig. 2).

    window rows -> convolution, convolution -> mean over time -> dense (32) = context        Eq. 9
    newest rows, memory, context            -> dense (16) -> output                = L_i     Eq. 8

Options beyond the paper: statistics of the window that multiply the head's observations (modulation.py), and a temporal
part that does not see the policy, or none.

Leaky ReLU follows every layer but the last. The paper names it for the convolutions and for the head's hidden layer
and is silent about the 32-unit layer; it is used there too, as between any two layers.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from epg.core.spaces import Spaces
from epg.core.types import Experience, InnerParams
from epg.loss.inputs import build_constants, build_head_rows, build_rows, row_columns, untrained_constants
from epg.loss.modulation import mix
from epg.policies.distributions import Distribution
from epg.settings import LossSettings

SLOPE = 0.2  # of the leaky ReLU
LOG_STD_RANGE = (-5.0, 2.0)  # where the loss can move the policy's log-std: SAC's bounds
MEMORY_INPUTS = 64  # ones that the memory layer is fed with, as in the authors' 2018 code


class Loss(eqx.Module):
    """Loss parameters, phi. Outside a lifetime they travel as one flat vector."""

    kernels: tuple[Array, ...]  # each [kernel, in, channels]; the first has in = C + K
    kernel_biases: tuple[Array, ...]  # each [channels]
    context: Array  # [channels, context]
    context_bias: Array  # [context]
    mixes: Array  # [K, Q] of the modulated head; [0, 0] without
    mix_bias: Array  # [K]
    head: Array  # [head rows + constants + context, hidden]
    head_bias: Array  # [hidden]
    output: Array  # [hidden]; no bias, because a constant has no gradient


class CachedInputs(NamedTuple):
    """Parts of the first layers that do not depend on theta, cached for one update.

    The first convolution and the first layer of the head are linear in the rows, and only the policy's columns
    change from one gradient step to the next.
    """

    frames: Array  # [T', channels] first convolution of all rows, without the policy's columns; [0] if not needed
    policy_kernel: Array  # [kernel, A, channels] weights of these columns; [0] if the context does not see them
    context: Array  # [context] if it does not depend on theta, else [0]
    head_sums: Array  # [M or N, hidden] first layer of the head on the newest rows, without the policy's columns
    policy_head: Array  # [A, hidden] weights of these columns


def cache_inputs(
    loss: Loss, settings: LossSettings, spaces: Spaces, experience: Experience, replay: bool = False
) -> CachedInputs:
    """Compute what all gradient steps of an update share, for the newest M rows or, with `replay`, for all N."""
    rows, newest = build_rows(settings, experience), slice(0 if replay else -experience.reward.shape[0], None)
    mixes = mix(loss.mixes, loss.mix_bias, settings, experience)
    head_rows = build_head_rows(settings, rows[newest], experience.window.observation[newest], mixes)
    policy = row_columns(settings, spaces)["policy"]
    frames = policy_kernel = context = jnp.zeros(0)
    if settings.temporal == "policy":
        kernel = loss.kernels[0]
        frames = convolve(rows, kernel[:, : rows.shape[1]], settings.strides[0])
        policy_kernel = kernel[:, policy]
    elif settings.temporal == "experience":
        seen = jnp.concatenate([rows[:, : policy.start], rows[:, policy.stop :]], axis=1)
        first = convolve(seen, loss.kernels[0][:, : seen.shape[1]], settings.strides[0])
        context = context_vector(loss, settings, first, untrained_constants(settings, experience))
    head_sums = head_rows @ loss.head[: head_rows.shape[1]]
    return CachedInputs(frames, policy_kernel, context, head_sums, loss.head[policy])


def evaluate(
    loss: Loss,
    settings: LossSettings,
    cached: CachedInputs,
    policy: Callable[[Array], Distribution],
    params: InnerParams,
    experience: Experience,
    batch: Array,
) -> Array:
    """Return the mean of L_i over the rows `batch` (indices into the cached rows), differentiable in `params`.

    `policy` gives the distribution at each observation under `params`. In the paper's network the context sees it at
    every window position, so gradients reach theta from all of them.
    """
    window, size = experience.window, cached.head_sums.shape[0]
    # Without bounds a loss that shrinks the log-std goes on for ever: past the evolved length the KL overflows.
    log_std = jnp.clip(params.policy.log_std, *LOG_STD_RANGE)
    constants = build_constants(settings, experience, memory_output(params.learner), log_std)
    if settings.temporal == "policy":
        outputs = policy(window.observation).loss_input() * window.valid[:, None]
        frames = cached.frames + convolve(outputs, cached.policy_kernel, settings.strides[0])
        context, rows = context_vector(loss, settings, frames, constants), outputs[-size:][batch]
    else:
        context, rows = cached.context, policy(window.observation[-size:][batch]).loss_input()
    sums = cached.head_sums[batch] + rows @ cached.policy_head
    return jnp.mean(head_values(loss, sums, constants, context))


def context_vector(loss: Loss, settings: LossSettings, frames: Array, constants: Array) -> Array:
    """Finish the temporal part (Eq. 9) from the first convolution of the rows, [T', channels], [K] -> [context]."""
    columns = slice(loss.kernels[0].shape[1] - constants.shape[0], None)
    everywhere = constants @ jnp.sum(loss.kernels[0][:, columns], axis=0)
    x = leaky_relu(frames + everywhere + loss.kernel_biases[0])
    for kernel, bias, stride in zip(loss.kernels[1:], loss.kernel_biases[1:], settings.strides[1:], strict=True):
        x = leaky_relu(convolve(x, kernel, stride) + bias)
    return leaky_relu(jnp.mean(x, axis=0) @ loss.context + loss.context_bias)


def head_values(loss: Loss, sums: Array, constants: Array, context: Array) -> Array:
    """Return L_i (Eq. 8), [B, hidden] -> [B]; `sums` is the head's first layer on the rows alone, without bias."""
    shared = jnp.concatenate([constants, context])
    return leaky_relu(sums + shared @ loss.head[len(loss.head) - len(shared) :] + loss.head_bias) @ loss.output


def memory_output(memory: Array) -> Array:
    """Return the memory's tanh units, [memory] -> [memory]: a layer fed with 64 ones.

    All 64 weights of a unit have the same gradient, so Adam moves them alike: they are kept as one, their mean. A unit
    moves 64 times as far as a bias would, which hardly moves within a lifetime.
    """
    return jnp.tanh(MEMORY_INPUTS * memory)


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
