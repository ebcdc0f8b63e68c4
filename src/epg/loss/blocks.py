"""Which entries of phi belong to which part of the loss network, and which of them evolve."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from epg.core.spaces import Spaces
from epg.loss.init import init_loss
from epg.loss.inputs import constant_columns, head_columns, width_of
from epg.settings import LossSettings

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


GROUPS = {
    "mixes": "fixed",
    "head: observation": "target",
    "head: observation products": "target",
    "head: task features": "target",
    "head bias": "target",
    "head: mixes": "mixes",
    "head: mixes x observation": "mixes",
}
"""Block -> part of phi that has a factor of its own on noise and steps; what is not named is the rest."""


def shares(settings: LossSettings, spaces: Spaces, factors: Mapping[str, float]) -> np.ndarray:
    """Return the factor on the noise and the steps of each entry of phi, [D]; 0: it does not evolve.

    The mixes stay as they were drawn.
    """
    known = {**factors, "fixed": 0.0}
    return np.array([known[GROUPS.get(str(it), "rest")] for it in _labels(settings, spaces)], np.float32)


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
