"""Checks of JSON that was read: a file that is not whole is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epg.core.errors import require
from epg.storage.files import read_json

LARGEST = 1e80  # square of what a float32 holds: larger numbers were never computed here


def read_object(path: Path, *required: str) -> dict[str, Any]:
    """Read a JSON object that has the `required` keys."""
    return with_keys(read_json(path), path, required)


def with_keys(data: Any, path: Path, required: Sequence[str] = ()) -> dict[str, Any]:
    """Return `data` if it is an object with the `required` keys, or refuse the file it came from."""
    require(isinstance(data, dict), f"{path} is damaged: an object was expected, not {type(data).__name__}.")
    missing = [name for name in required if name not in data]
    require(not missing, f"{path} is damaged: it lacks {', '.join(missing)}.")
    return data


def count(value: Any, name: str, path: Path) -> None:
    """Refuse a file in which a count is none."""
    require(type(value) is int and 0 < value < 2**31, f"{path} is damaged: {name} is {value!r}.")


def interval(data: Any, path: Path) -> dict[str, float]:
    """Return the value and the ends of an interval; NaN where one was not finite."""
    ends = {name: with_keys(data, path, ("value", "low", "high"))[name] for name in ("value", "low", "high")}
    for name, end in ends.items():
        usual = end is None or (type(end) in (int, float) and abs(end) <= LARGEST)
        require(usual, f"{path} is damaged: {name} is {end!r}.")
    return {name: math.nan if end is None else float(end) for name, end in ends.items()}
