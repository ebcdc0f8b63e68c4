"""A gradient whose rounding does not depend on the program around it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from epg.core.types import InnerParams, MetaParams


def unfused(meta: MetaParams, gradient: Callable[[InnerParams], InnerParams], params: InnerParams) -> InnerParams:
    """Wrap in an always-true lax.cond so that XLA cannot fuse the gradient with Adam.

    Keeps PPO bit-identical alone and as guidance.
    """
    return jax.lax.cond(meta.alpha <= 1.0, gradient, zeros_like, params)


def zeros_like(tree: Any) -> Any:
    """Return a tree of zeros."""
    return jax.tree.map(jnp.zeros_like, tree)
