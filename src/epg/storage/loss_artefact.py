"""The evolved loss as a file: phi, fixed observation statistics if it has any, and a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg.core.errors import require
from epg.core.plain import plain
from epg.storage.artefact import Kind
from epg.storage.files import Tensors

LOSS = Kind("loss", "loss", 2, {"parameters": int, "settings": dict, "seed": int, "epochs": int, "curve": list})
OPTIONAL = "obs_mean", "obs_std", "policy_init"


@dataclass(frozen=True)
class LossArtefact:
    """An evolved loss, ready to train policies."""

    phi: np.ndarray
    """Loss parameters, float32 [D]; [0] if there is only an initial policy, evolved for PPO."""
    tensors: Tensors
    """All tensors: phi; obs_mean and obs_std if observation statistics are fixed; policy_init if it evolved."""
    manifest: dict[str, Any]
    """What it is and where it came from."""

    @property
    def policy_init(self) -> np.ndarray:
        """The evolved initial policy, float32 [P]; [0] if policies start fresh."""
        return self.tensors.get("policy_init", np.zeros(0, np.float32))


def save_loss(directory: str | Path, tensors: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> str:
    """Write a loss and return the digest of its tensors."""
    whole = {**plain(manifest), "parameters": int(np.asarray(tensors["phi"]).size)}
    _check(dict(tensors), whole, directory)
    return LOSS.save(directory, tensors, whole)


def load_loss(path: str | Path) -> LossArtefact:
    """Load a loss from its directory, its loss.json or its loss.safetensors, refusing anything damaged."""
    tensors, manifest = LOSS.load(path)
    _check(tensors, manifest, path)
    return LossArtefact(tensors["phi"], tensors, manifest)


def check_start(start: Any, name: str) -> None:
    """Refuse a warm start, in the file `name`, that does not say what it was."""
    require(
        start is None or (isinstance(start, dict) and type(start.get("kind")) is str),
        f"{name}: warm_start must be null, or say of what kind the start was.",
    )


def _check(tensors: Tensors, manifest: Mapping[str, Any], path: str | Path) -> None:
    """Refuse what no loss can hold, by the name of the file that holds it."""
    described, name = LOSS.paths(path)
    for value in manifest.get("curve", ()):
        require(value is None or type(value) in (int, float), f"{described}: curve must be a list of numbers.")
    require("warm_start" in manifest, f"{described} is damaged: it lacks 'warm_start'.")
    check_start(manifest["warm_start"], str(described))
    require(
        "phi" in tensors and set(tensors) <= {"phi", *OPTIONAL},
        f"{name} is damaged: it must hold the tensor phi, and beside it only {', '.join(OPTIONAL)}.",
    )
    phi = tensors["phi"]
    for key in {"phi", "policy_init"} & set(tensors):
        value = tensors[key]
        require(
            value.dtype == np.float32 and value.ndim == 1,
            f"{name} is not a loss: {key} must be a float32 vector, not {value.dtype} of shape {value.shape}.",
        )
    require(
        len(phi) == manifest["parameters"],
        f"{name} is not the loss of its manifest: phi has length {len(phi)}, not {manifest['parameters']}.",
    )
    for key, value in tensors.items():
        require(bool(np.isfinite(value).all()), f"{name} is damaged: {key} holds a number that is not finite.")
