"""Artefacts: STEM.safetensors (tensors alone) beside STEM.json (their manifest), for losses and for policies.

Both file names are fixed: nothing in a manifest is ever used as a path. The manifest holds two digests: `sha256` of the
tensor file, and `manifest_sha256` of everything else in the manifest, so that no byte of either can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg import __version__
from epg.core.errors import BadInput, require
from epg.core.plain import plain
from epg.storage.files import (
    Tensors,
    check_format,
    decode_tensors,
    encode_tensors,
    make_directory,
    read_bytes,
    read_json,
    write_atomic,
    write_json,
)
from epg.storage.run import is_locked

MAX_BYTES = 256 * 2**20
ATTEMPTS = 5  # to read an artefact that is being written
COMMON_TYPES: dict[str, type] = {
    "format": int, "kind": str, "family": str, "family_version": int, "spaces": dict, "env_steps": int,
    "sha256": str, "manifest_sha256": str, "epg": str,
}  # fmt: skip
SPACES_TYPES: dict[str, type] = {"observation": int, "action": int, "discrete": bool, "features": int}


@dataclass(frozen=True)
class Kind:
    """A kind of artefact."""

    stem: str
    """File name without its ending."""
    noun: str
    """What messages call it."""
    format: int
    """Version of its format."""
    types: Mapping[str, type]
    """Type of each entry of its manifest, beside the common ones."""

    @property
    def manifest(self) -> str:
        """File name of the manifest."""
        return f"{self.stem}.json"

    @property
    def tensors(self) -> str:
        """File name of the tensors."""
        return f"{self.stem}.safetensors"

    def paths(self, path: str | Path) -> tuple[Path, Path]:
        """Return the paths of manifest and tensors, given a directory or either of the two files."""
        path = Path(path)
        directory = path.parent if path.name in (self.tensors, self.manifest) else path
        return directory / self.manifest, directory / self.tensors

    def save(self, directory: str | Path, tensors: Mapping[str, np.ndarray], manifest: Mapping[str, Any]) -> str:
        """Write an artefact and return the digest of its tensors. Format, kind, digests and the version of epg are
        added here; the caller gives the rest of the manifest. Without a licence it states none: what users make is
        theirs."""
        directory, data = Path(directory), encode_tensors(tensors, {})
        digest = hashlib.sha256(data).hexdigest()
        whole = {"format": self.format, "kind": f"epg-{self.stem}", "licence": None, **plain(manifest)}
        whole |= {"sha256": digest, "epg": __version__}
        whole["manifest_sha256"] = _manifest_digest(whole)
        self.check(whole, str(directory / self.manifest))
        make_directory(directory)
        write_atomic(directory / self.tensors, data)
        write_json(directory / self.manifest, whole)
        return digest

    def load(self, path: str | Path) -> tuple[Tensors, dict[str, Any]]:
        """Load tensors and manifest from a directory or either of its two files, refusing anything damaged.

        A run that goes on writes one file after the other: of that, two which do not match are read again.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return self._load(path)
            except BadInput:
                if not is_locked(self.paths(path)[0].parent):
                    raise
                time.sleep(0.1)
        return self._load(path)

    def _load(self, path: str | Path) -> tuple[Tensors, dict[str, Any]]:
        manifest_path, tensors_path = self.paths(path)
        require(os.path.exists(path), f"{path} does not exist: name a {self.noun}, or a run that has saved one.")
        require(os.path.isfile(manifest_path), f"{path} is not a {self.noun}: {manifest_path} is missing.")
        manifest = read_json(manifest_path)
        self.check(manifest, str(manifest_path))
        require(
            manifest["manifest_sha256"] == _manifest_digest(manifest),
            f"{manifest_path} is damaged: its content does not match its manifest_sha256.",
        )
        data = read_bytes(tensors_path, MAX_BYTES)
        require(
            hashlib.sha256(data).hexdigest() == manifest["sha256"],
            f"{tensors_path} is damaged: its sha256 is not the one in {self.manifest}.",
        )
        return decode_tensors(data, str(tensors_path))[0], manifest

    def check(self, manifest: Any, name: str) -> None:
        """Refuse a manifest that lacks an entry or has one of a wrong type."""
        require(isinstance(manifest, dict), f"{name} is damaged: it is not an object.")
        require(manifest.get("kind") == f"epg-{self.stem}", f"{name} is not the manifest of a {self.noun}.")
        check_format(manifest.get("format"), self.format, name, manifest.get("epg"))
        check_types(manifest, {**COMMON_TYPES, **self.types}, name)
        check_types(manifest["spaces"], SPACES_TYPES, f"{name}, spaces")
        check_types(manifest, {"licence": type(None) if manifest.get("licence", "") is None else str}, name)
        for digest in ("sha256", "manifest_sha256"):
            require(re.fullmatch(r"[0-9a-f]{64}", manifest[digest]) is not None, f"{name}: {digest} is not a digest.")


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_types(values: Mapping[str, Any], types: Mapping[str, type], name: str) -> None:
    """Refuse values that are missing, of another type, or negative."""
    for key, kind in types.items():
        require(key in values, f"{name} is damaged: it lacks {key!r}.")
        require(
            type(values[key]) is kind,
            f"{name} is damaged: {key!r} must be {kind.__name__}, not {type(values[key]).__name__}.",
        )
        require(kind is not int or values[key] >= 0, f"{name} is damaged: {key!r} must not be negative.")
