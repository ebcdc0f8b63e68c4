"""Warm starts: anything that gives evolution a first phi other than a fresh draw.

Optional, charged to the budget, and named in the manifest and in every table that shows the result.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg.core.errors import BadInput
from epg.settings import Settings
from epg.storage.artefact import Kind
from epg.storage.loss_artefact import LOSS
from epg.storage.policy_artefact import POLICY


@dataclass(frozen=True)
class WarmStart:
    """What an evolution starts from instead of a fresh phi."""

    phi: np.ndarray
    """The first loss parameters, [D]."""
    tensors: dict[str, np.ndarray]
    """Fixed observation statistics, if the settings ask for them: obs_mean, obs_std."""
    env_steps: int
    """Environment steps that it cost."""
    source: dict[str, Any]
    """What it is, for the manifest: kind (loss, policy), digest, steps."""


def load_warm_start(path: str | Path, settings: Settings) -> WarmStart:
    """Load a warm start from a loss or from a linear policy."""
    from epg.warm_starts.from_loss import start_from_loss
    from epg.warm_starts.from_policy import start_from_policy

    if _holds(path, POLICY):
        return start_from_policy(path, settings)
    if _holds(path, LOSS):
        return start_from_loss(path, settings)
    raise BadInput(f"no loss and no policy at {path}: give the directory of one.")


def _holds(path: str | Path, kind: Kind) -> bool:
    path = Path(path)
    return path.name in (kind.manifest, kind.tensors) or os.path.isfile(path / kind.manifest)
