"""A policy as a file: parameters, observation statistics and a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg.core.errors import require
from epg.storage.artefact import Kind
from epg.storage.files import Tensors

POLICY = Kind("policy", "policy", 1, {"policy": dict, "trained_by": str})


@dataclass(frozen=True)
class PolicyArtefact:
    """A policy, ready to act."""

    tensors: Tensors
    """Parameters by name, and obs_mean and obs_std."""
    manifest: dict[str, Any]
    """Architecture, family, and where it came from."""


def save_policy(directory: str | Path, tensors: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> str:
    """Write a policy and return the digest of its tensors."""
    return POLICY.save(directory, tensors, manifest)


def load_policy(path: str | Path) -> PolicyArtefact:
    """Load a policy from its directory or either of its two files, refusing anything damaged."""
    tensors, manifest = POLICY.load(path)
    name = POLICY.paths(path)[1]
    for key, value in tensors.items():
        require(
            bool(np.isfinite(value).all()),
            f"{name} is damaged: {key} holds a number that is not finite.",
        )
    return PolicyArtefact(tensors, manifest)
