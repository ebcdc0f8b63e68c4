"""Messages between processes: arrays and text as safetensors bytes. A peer can send numbers, never code."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import NamedTuple

from epg.executors.base import Arrays
from epg.storage.files import decode_tensors, encode_tensors

BUILD, REQUEST, RESULT, BAD_INPUT, FAILED = "build", "request", "result", "bad-input", "failed"


class Message(NamedTuple):
    """One message, either way."""

    kind: str
    """BUILD or REQUEST to a worker; RESULT, BAD_INPUT or FAILED from it."""
    arrays: Arrays
    """Of a request or a result; empty otherwise."""
    text: Mapping[str, str]
    """What to build, the ticket of a request, what went wrong and where (`error`, `trace`)."""


def encode(kind: str, arrays: Arrays, **text: str) -> bytes:
    """Encode a message; without a checksum, as neither sockets nor Ray lose anything."""
    return encode_tensors(arrays, {"kind": kind, **text}, checked=False)


def decode(data: bytes) -> Message:
    """Return the message that `encode` made these bytes of."""
    arrays, text = decode_tensors(data, "a message", checked=False)
    return Message(text["kind"], arrays, text)


def receive(connection: Connection) -> Message:
    """Wait for the next message; raises EOFError or OSError once the peer has gone."""
    return decode(connection.recv_bytes())
