"""What the loss sees: the declared inputs, and where each stands in the arrays of the network.

rows [N, C]:      inputs that change from step to step (observation, action, done, policy output, ...)
constants [K]:    inputs that are the same at every step of an update (memory, log-std, task features)

Always seen: observation, action, done, policy output, memory. Declared in `loss.inputs`:

reward                the reward. Without it, no reward reaches an update.
observation-products  products of two observations, seen by the head only
task-features         what the family reveals about the task (GoalAnt's goal)

The paper feeds both to every row. Constants are kept apart because a convolution of a constant needs no convolution:
its kernel is summed over time first, which saves most of the first layer's arithmetic.
"""

import jax.numpy as jnp
from jax import Array

from epg.core.errors import require
from epg.core.spaces import Spaces
from epg.core.types import Experience
from epg.policies.linear import observation_products
from epg.settings import LossSettings

Columns = dict[str, slice]


def row_columns(settings: LossSettings, spaces: Spaces) -> Columns:
    """Return the columns of each declared input within a row."""
    widths = {"observation": spaces.observation, "action": spaces.action, "done": 1, "policy": spaces.action}
    if settings.sees_reward:
        widths["reward"] = 1
    return _columns(widths)


def head_columns(settings: LossSettings, spaces: Spaces) -> Columns:
    """Return the columns of each declared input within a row of the head, which sees more than the convolutions."""
    columns = row_columns(settings, spaces)
    if "observation-products" in settings.inputs:
        start, products = width_of(columns), spaces.observation * (spaces.observation + 1) // 2
        columns["observation products"] = slice(start, start + products)
    if settings.modulation != "none":
        start, products = width_of(columns), settings.mixes * spaces.observation
        columns["mixes x observation"] = slice(start, start + products)
        columns["mixes"] = slice(start + products, start + products + settings.mixes)
    return columns


def constant_columns(settings: LossSettings, spaces: Spaces) -> Columns:
    """Return the columns of each declared input that is constant within an update."""
    widths = {"memory": settings.memory}
    if not spaces.discrete:
        widths["log_std"] = spaces.action
    if "task-features" in settings.inputs:
        require(spaces.features > 0, "loss.inputs names task-features, but the family has no task features.")
        widths["task features"] = spaces.features
    return _columns(widths)


def _columns(widths: dict[str, int]) -> Columns:
    columns, start = {}, 0
    for name, width in widths.items():
        columns[name] = slice(start, start + width)
        start += width
    return columns


def width_of(columns: Columns) -> int:
    """Return the number of columns."""
    return max(column.stop for column in columns.values())


def build_rows(settings: LossSettings, experience: Experience) -> Array:
    """Stack the declared inputs of each window position, [N, C]. Policy columns are zero: they change with theta."""
    window = experience.window
    parts = [window.observation, window.action, window.done[:, None], jnp.zeros_like(window.action)]
    if settings.sees_reward:
        parts.append(window.reward[:, None])
    return jnp.concatenate(parts, axis=1)


def build_head_rows(settings: LossSettings, rows: Array, observation: Array, mixes: Array) -> Array:
    """Append what only the head sees to rows [B, C]: products of observations; mixes x observation, and mixes [K]."""
    parts = [rows]
    if "observation-products" in settings.inputs:
        parts.append(observation_products(observation))
    if settings.modulation != "none":
        products = (mixes[:, None] * observation[:, None, :]).reshape(len(rows), -1)  # [B, K, O] -> [B, K O]
        parts += [products, jnp.broadcast_to(mixes, (len(rows), len(mixes)))]
    return jnp.concatenate(parts, axis=1)


def build_constants(settings: LossSettings, experience: Experience, memory: Array, log_std: Array) -> Array:
    """Stack the declared inputs that are the same at every position; `memory` is the memory's output."""
    return jnp.concatenate([memory, log_std, untrained_constants(settings, experience)])


def untrained_constants(settings: LossSettings, experience: Experience) -> Array:
    """Return those of them that training does not change."""
    return experience.task_features if "task-features" in settings.inputs else jnp.zeros(0)
