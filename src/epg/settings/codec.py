"""Settings records to and from plain JSON values; unknown names and wrong types are refused by name."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from epg.core.errors import BadInput, did_you_mean, require

T = TypeVar("T")

LARGEST = 3e38  # slightly below the largest float32, in which everything is computed


def to_dict(settings: Any) -> dict[str, Any]:
    """Return any settings record as plain JSON values."""
    return dataclasses.asdict(settings)


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return every value by its dotted name, as the command line spells it."""
    values: dict[str, Any] = {}
    for name, value in vars(settings).items():
        nested = dataclasses.is_dataclass(value)
        values |= flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return values


def with_values(settings: T, values: Mapping[str, Any], where: str = "settings") -> T:
    """Return settings with some values changed, each by its dotted name or in a mapping of its section."""
    merged, known = to_dict(settings), flat(settings)
    for name, value in _dotted(values).items():
        require(name in known, f"{where}: there is no setting named {name!r}{did_you_mean(name, known)}.")
        *sections, last = name.split(".")
        section = merged
        for one in sections:
            section = section[one]
        section[last] = value
    return from_dict(type(settings), merged, where)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten sections into dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def from_dict(kind: type[T], data: Any, where: str = "config") -> T:
    """Rebuild a settings record, refusing unknown names and wrong types by name."""
    require(isinstance(data, dict), f"{where} must be an object, not {type(data).__name__}.")
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(data) - set(hints))
    require(not unknown, f"{where} has no setting named {', '.join(map(repr, unknown))}.")
    values = {name: _convert(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInput(f"{where} is incomplete: {error}.") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        require(value in choices, f"{where} must be one of {', '.join(map(str, choices))}, not {value!r}.")
        return value
    if origin is tuple:
        require(isinstance(value, list | tuple), f"{where} must be a list, not {value!r}.")
        kinds = typing.get_args(hint)
        if kinds[-1] is not Ellipsis:
            require(len(value) == len(kinds), f"{where} must be a list of {len(kinds)}, not {value!r}.")
        return tuple(_convert(kinds[0], item, where) for item in value)
    if origin is types.UnionType:
        return None if value is None else _convert(typing.get_args(hint)[0], value, where)
    if hint is float and type(value) in (int, float):
        require(abs(value) <= LARGEST, f"{where} is too large for a number.")
        return float(value)
    require(type(value) is hint, f"{where} must be {hint.__name__}, not {value!r}.")
    return value
