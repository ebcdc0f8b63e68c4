"""Trees of arrays by name, for files: saved by path, not by position."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def named(tree: Any, prefix: str) -> dict[str, Any]:
    """Return the leaves of a tree by their path, in order: prefix/mean, prefix/opt_state/1/mu, ..."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {f"{prefix}/{jax.tree_util.keystr(path, simple=True, separator='/')}": leaf for path, leaf in paths}


def matched(own: dict[str, Any], prefix: str, tensors: dict[str, np.ndarray]) -> list[Array]:
    """Return the tensors named `prefix/...` in the order of the leaves `own`; ValueError if they are not like them."""
    found = {name: value for name, value in tensors.items() if name.startswith(f"{prefix}/")}
    if set(found) != set(own):
        raise ValueError(f"{prefix} differs in {', '.join(sorted(set(found) ^ set(own))[:3])}")
    for name, leaf in own.items():
        value = found[name]
        if value.shape != np.shape(leaf) or value.dtype != leaf.dtype:
            raise ValueError(f"{name} must be {leaf.dtype} {np.shape(leaf)}, not {value.dtype} {value.shape}")
    return [jnp.asarray(found[name]) for name in own]


def rebuilt(tree: Any, prefix: str, tensors: dict[str, np.ndarray]) -> Any:
    """Return a tree like `tree` from the tensors named `prefix/...`; ValueError if they are not like it."""
    return jax.tree.unflatten(jax.tree.structure(tree), matched(named(tree, prefix), prefix, tensors))
