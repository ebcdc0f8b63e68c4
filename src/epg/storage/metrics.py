"""What happened, by epochs or updates: metrics.jsonl for figures and reports, mirrored to TensorBoard."""

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
    "episodes": ("survived",),
    "signal": ("signal", "variance_between", "variance_residual"),
    "outer": ("alpha", "step_size", "phi_norm"),
    "health": ("nonfinite", "diverged"),
    "speed": ("env_steps", "seconds"),
}


def tag_of(name: str) -> str:
    """Return a metric's tag in TensorBoard, which groups by what stands before the slash."""
    return next((f"{group}/{name}" for group, names in GROUPS.items() if name in names), name)


class MetricsWriter:
    """Append one JSON line per epoch, or per update of a learning curve, and the numbers in it to TensorBoard.

    In TensorBoard an epoch is counted as in every figure, by the epochs done; and each learning curve is a run of its
    own over environment steps, so that curves of the same quantity share a chart.
    """

    def __init__(self, run: Run, purge_step: int | None = None) -> None:
        """Open the metrics of a new run; `resume` opens those of an old one."""
        self._run, self._path = run, run.metrics
        self._board: Any = None
        self._curve, self._purge_step = "", purge_step
        try:
            with contextlib.ExitStack() as stack:
                # Unbuffered: what a full disk refused must not be tried again, and fail again, on closing.
                self._file = stack.enter_context(open_to_append(run.metrics))
                make_directory(run.tensorboard)
                stack.pop_all()
        except OSError as error:
            raise BadInput(f"{run.path} cannot be written: {error.strerror or error}.") from error

    @classmethod
    def resume(cls, run: Run, next_epoch: int) -> MetricsWriter:
        """Open the metrics as they were before `next_epoch`: what came after is about to happen again."""
        if os.path.exists(run.metrics):
            kept = [line for line, record in _records(run.metrics) if record["epoch"] < next_epoch]
            write_atomic(run.metrics, b"".join(line + b"\n" for line in kept))
        return cls(run, purge_step=next_epoch + 1)

    def write(self, epoch: int, values: Mapping[str, Any]) -> None:
        """Append the line of `epoch`; a number that is not finite becomes null, and TensorBoard skips it."""
        record = self._append({"epoch": epoch, **values})
        for name, value in _scalars(record).items():
            self._open_board("").add_scalar(tag_of(name), value, epoch + 1)

    def write_update(self, curve: str, env_steps: int, values: Mapping[str, Any]) -> None:
        """Append a line of a learning curve; curves come one after the other."""
        record = self._append({"curve": curve, "env_steps": env_steps, **values})
        for name in values:
            if record[name] is not None:
                self._open_board(curve).add_scalar(f"learning/{name}", record[name], env_steps)

    def _append(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self._run.check_place()
        record: dict[str, Any] = plain(values)
        try:
            line = memoryview((json.dumps(record, allow_nan=False) + "\n").encode())
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise BadInput(f"{self._path} cannot be written: {error.strerror or error}.") from error
        return record

    def _open_board(self, curve: str) -> Any:
        """Return TensorBoard's writer of a curve, or of the epochs."""
        if self._board is not None and curve == self._curve:
            return self._board
        alone = "CRC32C_SW_MODE" not in os.environ
        from tensorboardX import SummaryWriter  # here: it takes a second to load, and readers need none of it
        from tensorboardX.record_writer import register_writer_factory

        if alone:
            os.environ.pop("CRC32C_SW_MODE", None)  # tensorboardX sets it; the environment is the caller's
        if self._board is not None:
            self._board.close()
        register_writer_factory(_Mirrors.PREFIX, _Mirrors())
        make_directory(place := self._run.tensorboard / curve)
        try:
            # A suffix of its own: sessions begun within one second would overwrite each other's events.
            suffix = f".{time.time_ns()}"
            self._board = SummaryWriter(
                f"{_Mirrors.PREFIX}:{place}", purge_step=self._purge_step, filename_suffix=suffix, flush_secs=10
            )
        except OSError as error:
            raise BadInput(f"{self._run.path} cannot be written: {error.strerror or error}.") from error
        self._curve = curve
        return self._board

    def close(self) -> None:
        """Write out what is waiting and close both."""
        if self._board is not None:
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
    number = record.get("env_steps" if "curve" in record else "epoch") if isinstance(record, dict) else None
    require(type(number) is int, f"{name} is damaged: it has no epoch.")
    return record
