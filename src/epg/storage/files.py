"""Read and write whole files: atomically, the same bytes every time, damage refused by name, no pickle.

Tensors are kept in safetensors (https://github.com/huggingface/safetensors): eight bytes of header length, a
JSON header, the raw numbers. The header is written here rather than by the library because the library orders
metadata at random, and the same input must give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy

from epg.core.errors import BadInput, NewerFormat, require
from epg.core.plain import plain

MAX_JSON_BYTES = 16 * 2**20
MAX_JSON_DEPTH = 64
MAX_HEADER_BYTES = 128 * 2**10
JSON_ALLOWANCE = 2**19
MAX_TENSOR_BYTES = 2 * 2**30

# What a value takes in memory, at least, by the mark that comes before or within it.
_JSON_COSTS = {b",": 32, b"[": 88, b"{": 240, b":": 64}

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}

Tensors = dict[str, np.ndarray]


def write_atomic(path: Path, data: bytes, replace: bool = True) -> None:
    """Replace `path` by `data` so that a reader or a crash sees the old file or the new one, never a part.

    Without `replace` there must be no old file, not even one that appeared a moment ago.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            _write_synced(aside, data)
            if not replace:
                _claim(aside, path)
            os.replace(aside, path)  # leaves `aside` where it is if both are links to one file
        finally:
            aside.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from error


def _claim(aside: Path, path: Path) -> None:
    """Take a name, or fail because it is taken: the one step in which two processes cannot both succeed."""
    try:
        os.link(aside, path)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise  # any other: a file system without links


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    # The rename itself survives a power cut only once its directory is on disk.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, parents: bool = True) -> None:
    """Make a directory, on disk, unless it is there; a symbolic link in its place is refused."""
    require(not os.path.islink(path), f"{path} is a symbolic link, which is not followed: remove it.")
    missing = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
    try:
        path.mkdir(parents=parents, exist_ok=True)
        for folder in missing:
            _sync_directory(folder.parent)
    except OSError as error:
        raise BadInput(f"{path} cannot be made: {error.strerror or error}.") from error


def open_to_append(path: Path) -> BinaryIO:
    """Open a file to append to, unbuffered; a symbolic link in its place is not followed (OSError)."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o666), "ab", buffering=0)


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    try:
        status = path.stat()
        require(stat.S_ISREG(status.st_mode), f"{path} is not a file.")
        require(status.st_size <= limit, f"{path} is too large: {status.st_size} bytes, at most {limit}.")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error


def encode_tensors(tensors: Mapping[str, Any], metadata: Mapping[str, str], checked: bool = True) -> bytes:
    """Encode arrays as safetensors, the same input always as the same bytes; `checked` adds a digest."""
    arrays = {name: np.asarray(value) for name, value in tensors.items()}
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # wide first: aligned
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    parts, end = [], 0
    for name in names:
        array = arrays[name]
        if array.dtype.name not in _CODES or name == "__metadata__":
            raise TypeError(f"tensor {name!r} of dtype {array.dtype} cannot be stored")
        parts.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end],
        }  # fmt: skip
    body = b"".join(parts)
    if checked:
        header["__metadata__"]["sha256"] = _digest(header, body)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def decode_tensors(data: bytes, name: str, checked: bool = True) -> tuple[Tensors, dict[str, str]]:
    """Return the arrays and the metadata of safetensors bytes that came from the file `name`."""
    try:
        header, start = _read_header(data)
        metadata = header.get("__metadata__", {})
        if checked:
            digest = _digest(header, memoryview(data)[start:])
            require(metadata.get("sha256") == digest, "its checksum does not match")
        tensors = safetensors.numpy.load(data)
    except (BadInput, ValueError, OverflowError, RecursionError, safetensors.SafetensorError) as error:
        raise BadInput(f"{name} is damaged: {error}.") from error
    return tensors, {key: value for key, value in metadata.items() if key != "sha256"}


def read_tensors(path: Path, checked: bool = True) -> tuple[Tensors, dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file, written by `encode_tensors` if `checked`."""
    return decode_tensors(read_bytes(path, MAX_TENSOR_BYTES), str(path), checked)


def _digest(header: Mapping[str, Any], body: bytes | memoryview) -> str:
    metadata = {key: value for key, value in header.get("__metadata__", {}).items() if key != "sha256"}
    canonical = json.dumps({**header, "__metadata__": metadata}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode())
    digest.update(body)
    return digest.hexdigest()


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    """Return the header and where the numbers begin, once every size in it agrees with the file."""
    length = int.from_bytes(data[:8], "little")
    require(len(data) >= 8 and length <= len(data) - 8, "its header is cut short")
    require(length <= MAX_HEADER_BYTES, f"its header is longer than {MAX_HEADER_BYTES} bytes")
    header = _loads(data[8 : 8 + length])
    require(isinstance(header, dict), "its header is not an object")
    metadata = header.get("__metadata__", {})
    require(
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values()),
        "its metadata are not text",
    )
    entries = [_check_entry(name, entry) for name, entry in header.items() if name != "__metadata__"]
    end = 0
    for start, stop in sorted(entries):
        require(start == end, "its tensors overlap or leave a gap")
        end = stop
    require(end == len(data) - 8 - length, "its length is not what its header says")
    return header, 8 + length


def _check_entry(name: str, entry: Any) -> tuple[int, int]:
    """Return where a tensor starts and stops, once its dtype, shape and size agree."""
    require(
        isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"},
        f"tensor {name!r} lacks its dtype, shape or place",
    )
    shape, place = entry["shape"], entry["data_offsets"]
    require(entry["dtype"] in list(_DTYPES), f"tensor {name!r} has a dtype that is not allowed")
    for numbers in (shape, place):
        require(
            isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers),
            f"tensor {name!r} has an impossible shape or place",
        )
    require(len(place) == 2, f"tensor {name!r} has an impossible place")
    size = math.prod(shape) * np.dtype(_DTYPES[entry["dtype"]]).itemsize
    require(place[1] - place[0] == size, f"tensor {name!r} has a size that its shape denies")
    return place[0], place[1]


def write_json(path: Path, value: Any, replace: bool = True) -> None:
    """Write `value` as indented JSON in its own order; without `replace`, refuse if there is a file already."""
    write_atomic(path, (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode(), replace)


def read_json(path: Path) -> Any:
    """Return what a JSON file of bounded size and depth holds."""
    return parse_json(read_bytes(path, MAX_JSON_BYTES), str(path))


def parse_json(data: bytes | str, name: str) -> Any:
    """Return what JSON text of bounded depth and memory says; `name` names it when damaged."""
    try:
        return _loads(data.encode() if isinstance(data, str) else data)
    except (BadInput, ValueError, RecursionError) as error:
        raise BadInput(f"{name} is damaged: {error}.") from error


def _loads(data: bytes) -> Any:
    """Parse JSON once it is known to take no more memory than twice its length and JSON_ALLOWANCE."""
    cost = sum(data.count(mark) * each for mark, each in _JSON_COSTS.items())
    if not data.isascii() or b"\\u" in data:
        cost += 6 * len(data)  # one wide character makes a whole string wide
    require(cost <= 2 * len(data) + JSON_ALLOWANCE, "it would take far more memory than its size")
    value = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded)
    require(_depth(value) <= MAX_JSON_DEPTH, f"it is nested deeper than {MAX_JSON_DEPTH}")
    if not data.isascii() or b"\\u" in data:
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be read, but never written again
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    require(math.isfinite(value), f"{text[:20]} is too large for a number")
    return value


def _bounded(text: str) -> int:
    require(len(text) < 20, f"{text[:20]} is too large for a number")  # and no longer fits 64 bits
    return int(text)


def _depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(child) for child in children), default=0)


def check_format(found: Any, known: int, name: str, writer: Any) -> None:
    """Refuse a format that this release does not read, naming the release that does: the one that wrote it."""
    require(type(found) is int and found > 0, f"{name} is damaged: format {str(found)[:20]} never existed.")
    release = f" to {writer}, which wrote it" if re.fullmatch(r"\d[\w.+-]{0,30}", str(writer)) else ""
    if found > known:
        raise NewerFormat(f"{name} has format {found}, newer than this epg reads ({known}): upgrade epg{release}.")
    require(found == known, f"{name} has format {found}, older than this epg reads ({known}): make it again.")
