"""Atomic writes, safetensors and JSON: round trips against the library, and every kind of damage."""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from epg.core.errors import BadInput
from epg.storage import files
from epg.storage.files import decode_tensors, encode_tensors, read_json, read_tensors, write_atomic, write_json

TENSORS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
    "scalar": np.asarray(3.5),
    "empty": np.zeros((0, 4), np.int32),
    "flags": np.asarray([True, False, True]),
    "count": np.asarray([-(2**60)], np.int64),
    "bytes": np.arange(5, dtype=np.uint8),
    "swapped": np.asarray([1.5, -2.0], ">f8"),
}


def raw(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype: Any = "F32", shape: Any = (2,), place: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": place}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all(
        first[name].dtype.name == second[name].dtype.name
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].astype(first[name].dtype).tobytes()
        for name in first
    )


# Tensors.


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(encode_tensors(TENSORS, {"note": "é"}))
    tensors, metadata = read_tensors(path)
    assert metadata == {"note": "é"}
    assert same(tensors, TENSORS)
    np.testing.assert_array_equal(tensors["weights"], [[0, 3], [1, 4], [2, 5]])


def test_the_library_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    ours = safetensors.numpy.load(encode_tensors(TENSORS, {"a": "1", "b": "2"}))
    assert same(ours, TENSORS)
    contiguous = {name: np.ascontiguousarray(array) for name, array in TENSORS.items() if name != "swapped"}
    theirs = safetensors.numpy.save(contiguous, {"a": "1", "b": "2"})
    tensors, metadata = decode_tensors(theirs, "theirs", checked=False)
    assert metadata == {"a": "1", "b": "2"}
    assert same(tensors, contiguous)
    with pytest.raises(BadInput, match="theirs is damaged: its checksum"):
        decode_tensors(theirs, "theirs")


def test_the_same_input_gives_the_same_bytes_in_whatever_order() -> None:
    metadata = {f"key{n}": str(n) for n in range(8)}
    one = encode_tensors(TENSORS, metadata)
    other = encode_tensors(dict(reversed(TENSORS.items())), dict(reversed(metadata.items())))
    assert one == other
    assert one != encode_tensors(TENSORS, {**metadata, "key0": "1"})


@pytest.mark.parametrize("bad", [np.asarray([{}]), np.asarray(["text"]), np.asarray([1j])])
def test_what_cannot_be_stored_is_not(bad: np.ndarray) -> None:
    with pytest.raises(TypeError, match="tensor 'bad'"):
        encode_tensors({"bad": bad}, {})


def test_no_flipped_bit_passes() -> None:
    data = encode_tensors(TENSORS, {"note": "text"})
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(BadInput, match="x is damaged"):
            decode_tensors(bytes(damaged), "x")


def test_no_truncation_or_extension_passes() -> None:
    data = encode_tensors(TENSORS, {"note": "text"})
    for length in range(len(data)):
        with pytest.raises(BadInput, match="x is damaged"):
            decode_tensors(data[:length], "x")
    with pytest.raises(BadInput, match="its length"):
        decode_tensors(data + b"\0", "x")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (raw({}, length=2**63), "header is cut short"),
        (raw({}, length=3), "header is cut short"),
        (raw([]), "header is not an object"),
        (raw(b"{" * 100_000), "damaged"),
        (raw(b"[" * 100_000), "damaged"),
        (raw(b"\xff\xfe"), "damaged"),
        (raw({"__metadata__": {"a": 1}}), "metadata"),
        (raw({"__metadata__": []}), "metadata"),
        (raw({"a": 1}), "'a' lacks"),
        (raw({"a": {"dtype": "F32", "shape": [2]}}), "'a' lacks"),
        (raw({"a": entry(dtype="O")}, bytes(8)), "dtype that is not allowed"),
        (raw({"a": entry(dtype="BF16", shape=[4])}, bytes(8)), "dtype that is not allowed"),
        (raw({"a": entry(dtype=["F32"])}, bytes(8)), "dtype that is not allowed"),
        (raw({"a": entry(shape=[-2])}, bytes(8)), "impossible shape"),
        (raw({"a": entry(shape=[2.0])}, bytes(8)), "impossible shape"),
        (raw({"a": entry(shape=[True, 2])}, bytes(8)), "impossible shape"),
        (raw({"a": entry(shape=2)}, bytes(8)), "impossible shape"),
        (raw({"a": entry(place=[0])}, bytes(8)), "impossible place"),
        (raw({"a": entry(shape=[3])}, bytes(8)), "size that its shape denies"),
        (raw({"a": entry(shape=[2**40], place=[0, 2**42])}, bytes(8)), "length is not what"),
        (raw({"a": entry(shape=[0, 2**70], place=[0, 0])}), "damaged"),
        (raw({"a": entry(), "b": entry()}, bytes(8)), "overlap or leave a gap"),
        (raw({"a": entry(), "b": entry(place=[12, 20])}, bytes(20)), "overlap or leave a gap"),
        (raw({"a": entry()}, bytes(4)), "length is not what"),
    ],
)
def test_each_inconsistent_header_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadInput, match=rf"^x is damaged: .*{reason}" if reason != "damaged" else "^x is damaged"):
        decode_tensors(data, "x", checked=False)


def test_the_checks_of_headers_let_a_sound_one_pass() -> None:
    tensors, _ = decode_tensors(raw({"a": entry()}, bytes(8)), "x", checked=False)
    np.testing.assert_array_equal(tensors["a"], np.zeros(2, np.float32), strict=True)


# Atomic writes.


def test_a_write_replaces_and_leaves_nothing_aside(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_is_on_disk_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def watched_replace(source: Path, target: Path) -> None:
        steps.append("replace")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", watched_fsync)
    monkeypatch.setattr(files.os, "replace", watched_replace)
    write_atomic(tmp_path / "a", b"one")
    assert steps == ["file", "replace", "directory"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"one")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(BadInput, match=rf"^{path} cannot be written: No space left on device\.$"):
        write_atomic(path, b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a"]


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"one")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a"]


def test_a_place_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none/a cannot be written: No such file"):
        write_atomic(tmp_path / "none" / "a", b"")


# JSON.


def test_json_keeps_order_and_turns_what_is_not_finite_into_null(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"z": [1.5, float("nan"), (float("inf"), -float("inf"))], "a": np.float32(0.5), "n": np.int64(3)}
    write_json(path, {**value, "deep": {"flag": True, "none": None}})
    text = path.read_text()
    assert text.startswith('{\n  "z": [\n')
    expected = {"z": [1.5, None, [None, None]], "a": 0.5, "n": 3, "deep": {"flag": True, "none": None}}
    assert read_json(path) == expected
    assert list(read_json(path)) == ["z", "a", "n", "deep"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"a": 1',
        b'{"a": NaN}',
        b"[Infinity]",
        b"\xff\xff",
        b"[" * 100 + b"]" * 100,
        b"[" * 100_000,
        b"9" * 5000,
        b'{"a": "\\ud800"}',
    ],
)
def test_damaged_json_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=rf"^{path} is damaged: "):
        read_json(path)


def test_json_may_be_as_deep_as_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" * files.MAX_JSON_DEPTH + b"]" * files.MAX_JSON_DEPTH)
    assert isinstance(read_json(path), list)


def test_files_missing_too_large_or_not_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing\.json cannot be read: No such file"):
        read_json(tmp_path / "missing.json")
    with pytest.raises(BadInput, match=r" is not a file\."):
        read_json(tmp_path)
    with open(tmp_path / "large.json", "wb") as file:
        file.truncate(files.MAX_JSON_BYTES + 1)
    with pytest.raises(BadInput, match=r"large\.json is too large"):
        read_json(tmp_path / "large.json")
    with open(tmp_path / "large.safetensors", "wb") as file:
        file.truncate(files.MAX_TENSOR_BYTES + 1)  # sparse: takes no room
    with pytest.raises(BadInput, match=r"large\.safetensors is too large"):
        read_tensors(tmp_path / "large.safetensors")
