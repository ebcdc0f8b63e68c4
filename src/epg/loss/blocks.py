"""Which entries of phi belong to which part of the loss network, and which of them evolve."""

from typing import Any

import jax
import numpy as np

from epg.core.spaces import Spaces
from epg.loss.init import init_loss
from epg.loss.inputs import constant_columns, head_columns, width_of
from epg.settings import LossSettings
from epg.settings.evolution import Evolves

PARTS = {
    "kernels": "convolutions",
    "kernel_biases": "convolutions",
    "context": "context layer",
    "context_bias": "context layer",
    "mixes": "mixes",
    "mix_bias": "mixes",
    "head_bias": "head bias",
    "output": "output",
}


TARGET = (
    "head: observation",
    "head: observation products",
    "head: task features",
    "head: mixes",
    "head: mixes x observation",
    "head bias",
)
"""Blocks that a target action depends on."""


def moves(settings: LossSettings, spaces: Spaces, evolves: Evolves) -> tuple[np.ndarray, np.ndarray]:
    """Return whose noise and steps move each entry of phi, [D], and with which factor, [D]; 0: it does not evolve.

    The mixes stay as they were drawn. With `evolves` target only the weights of the two hidden units evolve that make
    the distance to each target action (`loss/init.py`), the second as the opposite of the first. Apart, they would have
    targets of their own, and between the two a policy would feel no gradient.
    """
    labels = _labels(settings, spaces).astype(str)
    source, factor = np.arange(len(labels)), (labels != "mixes").astype(np.float32)
    if evolves == "all":
        return source, factor
    rows = np.flatnonzero(np.isin(labels, TARGET)).reshape(-1, settings.hidden)
    first, second = (rows[:, unit : 2 * spaces.action : 2] for unit in (0, 1))
    source[second], factor[:] = first, 0.0
    factor[first], factor[second] = 1.0, -1.0
    return source, factor


def blocks(settings: LossSettings, spaces: Spaces) -> dict[str, np.ndarray]:
    """Return the indices into phi of each block that evolves; the head's first layer is divided by its inputs."""
    labels = _labels(settings, spaces)
    return {str(name): np.flatnonzero(labels == name) for name in dict.fromkeys(labels) if name != "mixes"}


def _labels(settings: LossSettings, spaces: Spaces) -> np.ndarray:
    """Return the name of each parameter's block, [D]."""
    shape = jax.eval_shape(lambda: init_loss(jax.random.key(0), settings, spaces))
    columns, width = head_columns(settings, spaces), width_of(head_columns(settings, spaces))
    constants = constant_columns(settings, spaces)
    columns |= {name: slice(width + it.start, width + it.stop) for name, it in constants.items()}
    head = np.full(shape.head.shape, "head: context", dtype=object)
    for name, rows in columns.items():
        head[rows] = f"head: {name}"

    def label(path: Any, leaf: Any) -> np.ndarray:
        part = path[0].name
        return head.ravel() if part == "head" else np.full(leaf.size, PARTS[part], dtype=object)

    labelled = jax.tree_util.tree_map_with_path(label, shape)
    return np.concatenate(jax.tree.leaves(labelled))
