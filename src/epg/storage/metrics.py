"""What happened, epoch by epoch: metrics.jsonl for figures and reports, mirrored to TensorBoard."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from epg.core.errors import BadInput, require
from epg.core.plain import plain
from epg.storage.files import make_directory, open_to_append, parse_json, read_bytes, write_atomic
from epg.storage.run import Run

MAX_METRICS_BYTES = 2**30


GROUPS = {
    "fitness": ("fitness_mean", "fitness_std", "fitness_best", "fitness_worst", "phi_fitness", "phi_fitness_error"),
    "signal": ("signal", "variance_between", "variance_residual"),
    "outer": ("alpha", "step_size", "phi_norm"),
    "health": ("nonfinite", "diverged"),
    "speed": ("env_steps", "seconds"),
}


def tag_of(name: str) -> str:
    """Return a metric's tag in TensorBoard, which groups by what stands before the slash."""
    return next((f"{group}/{name}" for group, names in GROUPS.items() if name in names), name)


class MetricsWriter:
    """Append one JSON line per epoch, and the numbers in it to TensorBoard."""

    def __init__(self, run: Run, purge_step: int | None = None) -> None:
        """Open the metrics of a new run; `resume` opens those of an old one."""
        from tensorboardX import SummaryWriter  # here: it takes a second to load, and readers need none of it
        from tensorboardX.record_writer import register_writer_factory

        register_writer_factory(_Mirrors.PREFIX, _Mirrors())
        self._run, self._path = run, run.metrics
        try:
            with contextlib.ExitStack() as stack:
                # Unbuffered: what a full disk refused must not be tried again, and fail again, on closing.
                self._file = stack.enter_context(open_to_append(run.metrics))
                make_directory(run.tensorboard)
                # A suffix of its own: sessions begun within one second would overwrite each other's events.
                suffix = f".{time.time_ns()}"
                place = f"{_Mirrors.PREFIX}:{run.tensorboard}"
                board = SummaryWriter(place, purge_step=purge_step, filename_suffix=suffix, flush_secs=10)
                stack.pop_all()
        except OSError as error:
            raise BadInput(f"{run.path} cannot be written: {error.strerror or error}.") from error
        self._board = board

    @classmethod
    def resume(cls, run: Run, next_epoch: int) -> MetricsWriter:
        """Open the metrics as they were before `next_epoch`: what came after is about to happen again."""
        if os.path.exists(run.metrics):
            kept = [line for line, record in _records(run.metrics) if record["epoch"] < next_epoch]
            write_atomic(run.metrics, b"".join(line + b"\n" for line in kept))
        return cls(run, purge_step=next_epoch)

    def write(self, epoch: int, values: Mapping[str, Any]) -> None:
        """Append the line of `epoch`; a number that is not finite becomes null, and TensorBoard skips it."""
        self._run.check_place()
        record = plain({"epoch": epoch, **values})
        try:
            line = memoryview((json.dumps(record, allow_nan=False) + "\n").encode())
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise BadInput(f"{self._path} cannot be written: {error.strerror or error}.") from error
        for name, value in _scalars(record).items():
            self._board.add_scalar(tag_of(name), value, epoch)

    def close(self) -> None:
        """Write out what is waiting and close both."""
        self._board.close()
        self._file.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Mirrors:
    """Open the files of TensorBoard: tensorboardX asks it for every path that begins with PREFIX."""

    PREFIX = "epg-mirror"

    def directory_check(self, path: str) -> None:
        """Nothing: the directory was made before."""

    def open(self, path: str) -> _Mirror:
        """Open a file to write."""
        return _Mirror(path.removeprefix(f"{self.PREFIX}:"))


class _Mirror:
    """A file that ignores write errors: it only repeats what metrics.jsonl holds, where a full disk is reported.

    tensorboardX writes from a thread, and again at exit: an error would end in tracebacks that nobody can catch.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (closed below)
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        """Keep until the next flush."""
        self._waiting += data

    def flush(self) -> None:
        """Write what was kept, if it can be written."""
        with contextlib.suppress(OSError):
            self._file.write(self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """Write and close."""
        self.flush()
        with contextlib.suppress(OSError):
            self._file.close()


def _scalars(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a record by tag; those of a nested record are grouped under its name."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= _scalars(value, f"{prefix}{name}/")
        elif name != "epoch" and type(value) in (int, float):
            found[prefix + name] = value
    return found


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the record of every epoch; a last line cut short by a kill is left out, other damage refused."""
    return [record for _, record in _records(path)]


def _records(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    *lines, last = read_bytes(path, MAX_METRICS_BYTES).split(b"\n")
    records = [(line, _record(line, f"{path}, line {n},")) for n, line in enumerate(lines, 1)]
    try:
        # Not ended by a newline: whole only if it parses, as no JSON object is the beginning of another.
        return [*records, (last, _record(last, "the torn line"))]
    except BadInput:
        return records


def _record(line: bytes, name: str) -> dict[str, Any]:
    record = parse_json(line, name)
    require(isinstance(record, dict) and type(record.get("epoch")) is int, f"{name} is damaged: it has no epoch.")
    return record
