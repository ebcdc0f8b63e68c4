"""Mutate artefacts and checkpoints as accidents and adversaries would, from a seeded generator."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

from epg.storage.artefact import _manifest_digest
from epg.storage.files import _digest

Files = dict[str, bytes]
"""Content by name."""

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, "", "x", "é", [], {}, [[]], {"a": 1},
    "../../../../etc/passwd", "/etc/passwd", "..\\..\\x", "file:///etc/passwd", "os:system", ".:x", "a b:c", "x\0:y",
    "point-goal", "point-reach", "0" * 64, "9" * 5000, "\ud800",
)  # fmt: skip
TORN_TEXTS = (
    b"", b"{", b"[" * 100_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 500 + b"]" * 500, b"NaN", b"[1e999]",
    b"[" + b"{}," * 60_000 + b"{}]", b"[" + b"0," * 200_000 + b"0]", b'"' + b"a" * 300_000 + b'\\ud83d\\ude00"',
    b"\xff\xfe", b"\0" * 64, b"9" * 5000, b'{"a":1,"a":2}', b"\x80\x05K\x01.", b"\x93NUMPY\x01\x00", b"PK\x03\x04",
)  # fmt: skip


def flip_bits(data: bytes, draw: random.Random) -> bytes:
    """Flip between one and eight bits."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def truncate(data: bytes, draw: random.Random) -> bytes:
    """Cut the end off, or repeat some of it."""
    cut = draw.randrange(len(data))
    return data[:cut] if draw.random() < 0.7 else data + data[cut:]


def shuffle_blocks(data: bytes, draw: random.Random) -> bytes:
    """Exchange two stretches, overwrite one with noise, or insert one."""
    size = draw.randint(1, 64)
    a, b = sorted(draw.randrange(len(data)) for _ in range(2))
    kind = draw.randrange(3)
    if kind == 0:
        return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]
    noise = draw.randbytes(size)
    return data[:a] + noise + data[a + size if kind == 1 else a :]


def change_json(value: Any, draw: random.Random) -> Any:
    """Put an odd value in a random place, or drop, rename, repeat or nest what is there."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []

    def collect(inner: Any) -> None:
        items = list(inner.items()) if isinstance(inner, dict) else list(enumerate(inner))
        for key, child in items:
            places.append((inner, key))
            if isinstance(child, dict | list) and child:
                collect(child)

    collect(value)
    for _ in range(draw.randint(1, 3)):
        holder, key = draw.choice(places)
        kind = draw.randrange(6)
        try:
            if kind == 0:
                del holder[key]
            elif kind == 1 and isinstance(holder, dict):
                holder[str(draw.choice(ODD_VALUES))[:40]] = holder.pop(key)
            elif kind == 2:
                holder[key] = [holder[key]] * draw.randint(1, 50)
            elif kind == 3:
                nested: Any = holder[key]
                for _ in range(draw.choice((1, 10, 70, 300))):
                    nested = draw.choice(({"a": nested}, [nested]))
                holder[key] = nested
            else:
                holder[key] = draw.choice(ODD_VALUES)
        except (KeyError, IndexError):
            continue  # went with an earlier change
    return value


def split_tensors(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the body of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join_tensors(header: Any, body: bytes, sign: bool) -> bytes:
    """Put a file together; `sign` gives it the checksum that belongs to it, if it can have one."""
    if sign:
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # no longer of a kind to be signed
            header["__metadata__"]["sha256"] = _digest(header, body)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(8, "little") + text + body


def swap_tensors(data: bytes, draw: random.Random) -> bytes:
    """Exchange the names, dtypes, shapes or places of tensors, and sign the result."""
    header, body = split_tensors(data)
    names = [name for name in header if name != "__metadata__"]
    a, b = draw.choice(names), draw.choice(names)
    if draw.random() < 0.3:
        header[a], header[b] = header[b], header[a]
    else:
        field = draw.choice(("dtype", "shape", "data_offsets"))
        header[a][field], header[b][field] = header[b][field], header[a][field]
    if draw.random() < 0.3:
        header[a]["dtype"] = draw.choice(("F64", "F16", "BF16", "I32", "BOOL", "F8_E4M3", "O", "complex64"))
    return join_tensors(header, body, sign=True)


def absurd_shapes(data: bytes, draw: random.Random) -> bytes:
    """Claim sizes that no file has, and sign the claim."""
    header, body = split_tensors(data)
    name = draw.choice([name for name in header if name != "__metadata__"])
    size = draw.choice((2**31, 2**40, 2**62, 2**63, 2**64, 10**30, -1, 0))
    header[name]["shape"] = draw.choice(([size], [size, size], [0, size], [1] * 40, [[]], "8", None, [1.5]))
    if draw.random() < 0.5:
        header[name]["data_offsets"] = draw.choice(([0, size], [size, size], [size, 0], [0], [0, 0, 0]))
    return join_tensors(header, body, sign=draw.random() < 0.8)


def change_header(data: bytes, draw: random.Random) -> bytes:
    """Change anything in the header, checksum right."""
    header, body = split_tensors(data)
    return join_tensors(change_json(header, draw), body, sign=True)


def other_numbers(data: bytes, draw: random.Random) -> bytes:
    """Put noise, NaN or infinity in place of the numbers, checksum right."""
    header, body = split_tensors(data)
    fill = draw.choice((draw.randbytes(4), b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff" * 4))
    start = 4 * draw.randrange(len(body) // 4)
    return join_tensors(header, body[:start] + fill + body[start + 4 :], sign=True)


def lie_about_length(data: bytes, draw: random.Random) -> bytes:
    """Change the length of the header."""
    return draw.choice((0, 1, 2**20, 2**31, 2**63, 2**64 - 1, len(data))).to_bytes(8, "little") + data[8:]


RAW: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip_bits, truncate, shuffle_blocks)
TENSORS = (*RAW, swap_tensors, absurd_shapes, change_header, other_numbers, lie_about_length)


def mutate(files: Files, draw: random.Random) -> Files:
    """Return the files with one or two of them changed; a changed loss may have both of its digests put right."""
    changed = dict(files)
    for name in draw.sample(sorted(files), draw.choice((1, 1, 1, 2)) if len(files) > 1 else 1):
        if draw.random() < 0.05:
            changed[name] = draw.choice(TORN_TEXTS)
        elif name.endswith(".safetensors"):
            changed[name] = draw.choice(TENSORS)(files[name], draw)
        elif draw.random() < 0.3:
            changed[name] = draw.choice(RAW)(files[name], draw)
        else:
            changed[name] = json.dumps(change_json(json.loads(files[name]), draw)).encode("utf-8", "surrogatepass")
    if "loss.json" in changed and draw.random() < 0.7:
        changed["loss.json"] = _with_digests(changed["loss.json"], changed["loss.safetensors"])
    return changed


def _with_digests(manifest: bytes, tensors: bytes) -> bytes:
    try:
        value = json.loads(manifest)
        value["sha256"] = hashlib.sha256(tensors).hexdigest()
        value["manifest_sha256"] = _manifest_digest(value)
    except (AttributeError, ValueError, TypeError, RecursionError):  # no longer of a kind to be signed
        return manifest
    return json.dumps(value).encode("utf-8", "surrogatepass")
