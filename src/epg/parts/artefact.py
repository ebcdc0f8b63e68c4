"""The evolved loss as a thing to use: loss.safetensors (phi alone) beside loss.json (its manifest).

The two names are fixed: nothing in a manifest is ever taken for a path.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg import __version__
from epg.parts.files import (
    check_format,
    decode_tensors,
    encode_tensors,
    make_directory,
    plain,
    read_bytes,
    read_json,
    write_atomic,
    write_json,
)
from epg.words.settings import require

LOSS_FORMAT = 1
MAX_LOSS_BYTES = 256 * 2**20
LOSS_TENSORS, LOSS_MANIFEST = "loss.safetensors", "loss.json"

_MANIFEST_TYPES: dict[str, type] = {
    "format": int, "kind": str, "family": str, "family_version": int, "spaces": dict, "parameters": int,
    "settings": dict, "seed": int, "epochs": int, "env_steps": int, "curve": list, "licence": str,
    "sha256": str, "epg": str,
}  # fmt: skip
_SPACES_TYPES: dict[str, type] = {"observation": int, "action": int, "discrete": bool, "features": int}


@dataclass(frozen=True)
class LossArtefact:
    """An evolved loss, ready to train policies."""

    phi: np.ndarray
    """Loss parameters, float32 [D]."""
    manifest: dict[str, Any]
    """What it is and where it came from."""


def save_loss(directory: str | Path, phi: np.ndarray, manifest: Mapping[str, Any]) -> str:
    """Write a loss and return the digest of its tensors. Here are added: format, kind, parameters, licence,
    sha256 and the version of epg; the caller gives the rest of the manifest."""
    directory = Path(directory)
    phi = np.asarray(phi)
    data = encode_tensors({"phi": phi}, {})
    digest = hashlib.sha256(data).hexdigest()
    whole = {
        "format": LOSS_FORMAT, "kind": "epg-loss", **plain(manifest), "parameters": int(phi.size),
        "licence": "MIT", "sha256": digest, "epg": __version__,
    }  # fmt: skip
    _check_manifest(whole, str(directory / LOSS_MANIFEST))
    _check_phi(phi, whole, str(directory / LOSS_TENSORS))
    make_directory(directory)
    write_atomic(directory / LOSS_TENSORS, data)
    write_json(directory / LOSS_MANIFEST, whole)
    return digest


def load_loss(path: str | Path) -> LossArtefact:
    """Load a loss from its directory, its loss.json or its loss.safetensors, refusing anything not whole."""
    path = Path(path)
    directory = path.parent if path.name in (LOSS_TENSORS, LOSS_MANIFEST) else path
    manifest_path, tensors_path = directory / LOSS_MANIFEST, directory / LOSS_TENSORS
    require(os.path.exists(path), f"{path} does not exist: name a loss, or a run that has saved one.")
    require(os.path.isfile(manifest_path), f"{path} is not a loss: {manifest_path} is missing.")
    manifest = read_json(manifest_path)
    _check_manifest(manifest, str(manifest_path))
    data = read_bytes(tensors_path, MAX_LOSS_BYTES)
    require(
        hashlib.sha256(data).hexdigest() == manifest["sha256"],
        f"{tensors_path} is damaged: its sha256 is not the one in {LOSS_MANIFEST}.",
    )
    tensors, _ = decode_tensors(data, str(tensors_path))
    del data  # the file and its copy are all that is ever held
    require(set(tensors) == {"phi"}, f"{tensors_path} is damaged: it must hold the one tensor phi.")
    _check_phi(tensors["phi"], manifest, str(tensors_path))
    return LossArtefact(tensors["phi"], manifest)


def _check_phi(phi: np.ndarray, manifest: Mapping[str, Any], name: str) -> None:
    require(
        phi.dtype == np.float32 and phi.ndim == 1,
        f"{name} is not a loss: phi must be a float32 vector, not {phi.dtype} of shape {phi.shape}.",
    )
    require(
        len(phi) == manifest["parameters"],
        f"{name} is not the loss of its manifest: phi has length {len(phi)}, not {manifest['parameters']}.",
    )
    require(bool(np.isfinite(phi).all()), f"{name} is damaged: phi holds a number that is not finite.")


def _check_manifest(manifest: Any, name: str) -> None:
    require(isinstance(manifest, dict), f"{name} is damaged: it is not an object.")
    require(manifest.get("kind") == "epg-loss", f"{name} is not the manifest of a loss.")
    check_format(manifest.get("format"), LOSS_FORMAT, name, manifest.get("epg"))
    _check_types(manifest, _MANIFEST_TYPES, name)
    _check_types(manifest["spaces"], _SPACES_TYPES, f"{name}, spaces")
    require(re.fullmatch(r"[0-9a-f]{64}", manifest["sha256"]) is not None, f"{name}: sha256 is not a digest.")
    require(
        all(value is None or type(value) in (int, float) for value in manifest["curve"]),
        f"{name}: curve must be a list of numbers.",
    )


def _check_types(values: Mapping[str, Any], types: Mapping[str, type], name: str) -> None:
    for key, kind in types.items():
        require(key in values, f"{name} is damaged: it lacks {key!r}.")
        require(
            type(values[key]) is kind,
            f"{name} is damaged: {key!r} must be {kind.__name__}, not {type(values[key]).__name__}.",
        )
        require(kind is not int or values[key] >= 0, f"{name} is damaged: {key!r} must not be negative.")
