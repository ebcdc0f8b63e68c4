"""Settings in a file: the config.json of a run, or JSON or TOML written by hand; as many or as few as one likes."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from epg.core.errors import BadInput, require
from epg.storage.files import read_bytes, read_json

MAX_BYTES = 2**20


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings that a run, its config.json or a file holds, by section and name."""
    path = path / "config.json" if os.path.isdir(path) else path
    require(path.suffix in (".json", ".toml"), f"{path} is no config: name a run, a .json or a .toml file.")
    data = read_json(path) if path.suffix == ".json" else _read_toml(path)
    require(isinstance(data, dict), f"{path} is no config: it must be an object of settings.")
    settings = data.get("settings", data) if "kind" in data else data  # of a run, or bare
    require(isinstance(settings, dict), f"{path} is damaged: its settings are not an object.")
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_bytes(path, MAX_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {error}.") from None
