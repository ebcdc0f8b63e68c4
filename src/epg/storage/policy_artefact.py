"""Policies as a file: parameters, observation statistics and a manifest. A run keeps those of all its tasks in one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg.core.errors import is_whole, require
from epg.storage.artefact import Kind, check_types
from epg.storage.files import Tensors

POLICY = Kind("policy", "policy", 1, {"policy": dict, "trained_by": str})
OPTIONAL: dict[str, type] = {"seed": int, "task": int, "baseline": str, "options": dict}
"""Type of what a manifest may hold besides."""
POLICIES = "policies"
"""Folder of a run with one folder per method: the policies that it trained."""


@dataclass(frozen=True)
class PolicyArtefact:
    """A policy, ready to act."""

    tensors: Tensors
    """Parameters by name, and obs_mean and obs_std."""
    manifest: dict[str, Any]
    """Architecture, family, and where it came from. `tasks`: how many policies its file holds, if it holds several."""


def save_policy(directory: str | Path, tensors: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> str:
    """Write a policy and return the digest of its tensors; `manifest` may name `tasks`, their common leading axis."""
    return POLICY.save(directory, tensors, manifest)


def load_policy(path: str | Path, task: int = 0) -> PolicyArtefact:
    """Load the policy of a task from its directory, its files or its run, refusing anything damaged."""
    tensors, manifest = POLICY.load(_find(Path(path)))
    check_types(manifest, {name: kind for name, kind in OPTIONAL.items() if name in manifest}, str(path))
    for one, other in (("baseline", "options"), ("tasks", "seed"), ("task", "seed")):
        require(one not in manifest or other in manifest, f"{path} is damaged: it lacks {other!r}.")
    number = manifest.get("tasks")
    require(number is None or (type(number) is int and number > 0), f"{path} is damaged: 'tasks' must be above zero.")
    require(is_whole(task), f"task must be a whole number, not {task!r}.")
    require(0 <= task < (number or 1), f"{path} holds the policies of {number or 1} tasks, counted from 0: not {task}.")
    if number is not None:
        same = all(value.ndim and len(value) == number for value in tensors.values())
        require(same, f"{path} is damaged: its tensors are not those of {number} policies.")
        tensors = {name: value[task] for name, value in tensors.items()}
    for name, value in tensors.items():
        finite = bool(np.isfinite(value).all())
        require(finite, f"{path} is damaged, or its training diverged: {name} holds a number that is not finite.")
    return PolicyArtefact(tensors, manifest)


def _find(path: Path) -> Path:
    """Return where the policy of a run lies: that of the loss, if several methods trained one."""
    if os.path.exists(path / POLICY.manifest) or not os.path.isdir(path / POLICIES):
        return path
    methods = sorted(it.name for it in (path / POLICIES).iterdir())
    require(len(methods) == 1 or "epg" in methods, f"{path} holds the policies of {', '.join(methods)}: name one.")
    return path / POLICIES / (methods[0] if len(methods) == 1 else "epg")
