"""Run directories and checkpoints. A checkpoint is for resuming a run; an artefact (artefact.py) is for use.

RUN/config.json                           the settings, in full
RUN/metrics.jsonl, tensorboard/, logs/    what happened
RUN/checkpoints/epoch-000012.safetensors  the newest two
RUN/loss.safetensors, loss.json           the evolved loss and its manifest
RUN/first/                                the loss before evolution, as an artefact of the same kind
RUN/figures/, report.html                 drawn from the above
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epg import __version__
from epg.core.errors import BadInput, NewerFormat, require
from epg.core.plain import plain
from epg.storage.files import (
    Tensors,
    check_format,
    encode_tensors,
    make_directory,
    open_to_append,
    parse_json,
    read_json,
    read_tensors,
    write_atomic,
    write_json,
)

RUN_FORMAT = 2
CHECKPOINT_FORMAT = 3
KEPT_CHECKPOINTS = 2

_CHECKPOINT_NAME = re.compile(r"epoch-(\d{6,})\.safetensors")


_LOCKED: dict[Path, os.stat_result] = {}
"""The lock file of each run that this process holds, as it was when taken."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on."""

    epoch: int
    """Epoch under which it was saved."""
    tensors: Tensors
    """Arrays by name."""
    info: dict[str, Any]
    """JSON values beside them."""
    skipped: tuple[str, ...] = ()
    """A sentence for each newer checkpoint that was damaged."""


@dataclass(frozen=True)
class Run:
    """A run directory. `create` and `open` are the ways to have one."""

    path: Path
    """The directory."""
    config: dict[str, Any]
    """What config.json holds."""

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any]) -> Run:
        """Make a new run, or refuse and leave the disk as it was."""
        path = Path(path)
        check_vacant(path)
        missing = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
        try:
            if not os.path.isdir(path):
                make_directory(path)
            write_json(path / "config.json", config, replace=False)  # two may create at once
        except BaseException:
            for folder in missing:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        return cls(path, plain(config))

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open the run that `path` holds."""
        path = Path(path)
        require(os.path.lexists(path), f"{path} does not exist: name the directory of a run.")
        require(os.path.isdir(path), f"{path} is not a directory: name the directory of a run.")
        require(os.path.isfile(path / "config.json"), f"{path} is not a run: it has no config.json.")
        config = read_json(path / "config.json")
        require(isinstance(config, dict), f"{path / 'config.json'} is damaged: it is not an object.")
        check_format(config.get("format"), RUN_FORMAT, str(path / "config.json"), config.get("epg"))
        return cls(path, config)

    @property
    def digest(self) -> str:
        """Digest of config.json, in every checkpoint; without the number of epochs, which may grow."""
        config: dict[str, Any] = json.loads(json.dumps(plain(self.config)))
        with contextlib.suppress(KeyError, TypeError):
            del config["settings"]["evolution"]["epochs"]
        return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()

    @property
    def metrics(self) -> Path:
        """One JSON line per epoch."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Directory of the newest checkpoints."""
        return self.path / "checkpoints"

    @property
    def first(self) -> Path:
        """Directory of the loss before evolution."""
        return self.path / "first"

    @property
    def tensorboard(self) -> Path:
        """Directory that TensorBoard reads."""
        return self.path / "tensorboard"

    @property
    def figures(self) -> Path:
        """Directory of figures drawn from the run."""
        return self.path / "figures"

    @property
    def logs(self) -> Path:
        """Directory of the workers' logs."""
        return self.path / "logs"

    @property
    def report(self) -> Path:
        """The report drawn from the run."""
        return self.path / "report.html"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from working in this run; the kernel lets go if this one dies."""
        try:
            file = open_to_append(self.path / ".lock")
        except OSError as error:
            raise BadInput(f"{self.path} cannot be written: {error.strerror or error}.") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadInput(f"{self.path} is in use by another process: wait for it or stop it.") from None
            except OSError as error:  # a file system without locks
                raise BadInput(f"{self.path} cannot be locked: {error.strerror or error}.") from error
            self._sweep()
            _LOCKED[self.path] = os.fstat(file.fileno())
            try:
                yield
            finally:
                del _LOCKED[self.path]

    def check_place(self) -> None:
        """Refuse to write where another directory has taken the place of the one that was locked."""
        locked = _LOCKED.get(self.path)
        try:
            here = locked is None or os.path.samestat(os.lstat(self.path / ".lock"), locked)
        except OSError:
            here = False
        require(
            here, f"{self.path} was moved, deleted or replaced while it was in use: stopped, nothing is written there."
        )

    def _sweep(self) -> None:
        # Files written aside by a process that was killed: with the lock held, nobody is still writing them.
        inside = [folder for folder in (self.checkpoints, self.first) if not os.path.islink(folder)]
        for folder in (self.path, *inside):
            for leftover in folder.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    leftover.unlink()

    def save_checkpoint(self, epoch: int, tensors: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> Path:
        """Save a checkpoint, then delete all but the newest two. Non-finite floats of `info` become null."""
        metadata = {
            "format": str(CHECKPOINT_FORMAT),
            "epg": __version__,
            "epoch": str(epoch),
            "config_sha256": self.digest,
            "info": json.dumps(plain(info), allow_nan=False),
        }
        self.check_place()
        make_directory(self.checkpoints)
        path = self.checkpoints / f"epoch-{epoch:06d}.safetensors"
        write_atomic(path, encode_tensors(tensors, metadata))
        # A later epoch can only be one that was damaged and skipped: this run is about to write it again.
        saved = self._saved_checkpoints()
        kept = [number for number in sorted(saved) if number <= epoch][-KEPT_CHECKPOINTS:]
        try:
            for number in saved.keys() - set(kept):
                saved[number].unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"{self.checkpoints} cannot be cleared: {error.strerror or error}.") from error
        return path

    def load_checkpoint(self) -> Checkpoint | None:
        """Return the newest whole checkpoint, or None before the first; damaged ones are skipped by name."""
        saved = self._saved_checkpoints()
        skipped: list[str] = []
        for epoch in sorted(saved, reverse=True):
            try:
                tensors, info, digest = _read_checkpoint(saved[epoch], epoch)
            except NewerFormat:
                raise
            except BadInput as damage:
                skipped.append(str(damage))
                continue
            require(
                digest == self.digest,
                f"{saved[epoch]} does not belong to {self.path / 'config.json'}: "
                "that was edited, or the checkpoint is another run's.",
            )
            return Checkpoint(epoch, tensors, info, tuple(skipped))
        reasons = "; ".join(sentence.rstrip(".") for sentence in skipped)
        require(not skipped, f"{self.path} has no whole checkpoint, start a new run: {reasons}.")
        return None

    def _saved_checkpoints(self) -> dict[int, Path]:
        if not os.path.isdir(self.checkpoints):
            return {}
        try:
            named = [(path, _CHECKPOINT_NAME.fullmatch(path.name)) for path in self.checkpoints.iterdir()]
        except OSError as error:
            raise BadInput(f"{self.checkpoints} cannot be read: {error.strerror or error}.") from error
        return {int(match[1]): path for path, match in named if match}


@contextlib.contextmanager
def new_run(path: Path, config: Mapping[str, Any]) -> Iterator[Run]:
    """Make a run, locked, that stays only if the block ends well: nothing could resume it.

    What has taken its place meanwhile is left alone.
    """
    missing = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
    run = Run.create(path, config)
    with run.lock():
        try:
            yield run
        except BaseException:
            with contextlib.suppress(BadInput):  # the first error is the one to tell
                run.check_place()
                clear_run(path)
                for folder in missing:
                    with contextlib.suppress(OSError):  # somebody else uses it, too
                        folder.rmdir()
            raise


def is_locked(path: Path) -> bool:
    """Tell whether a process works in this run now."""
    try:
        with (path / ".lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no run, or none that was ever locked
        return False
    return False


def clear_run(path: Path) -> None:
    """Delete what a run directory holds; config.json last, so that one cleared by half is still known as a run."""
    try:
        for child in sorted(path.iterdir(), key=lambda it: it.name == "config.json"):
            shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
    except OSError as error:
        raise BadInput(f"{path} cannot be cleared: {error.strerror or error}.") from error


def check_vacant(path: Path) -> None:
    """Refuse a place where no new run can be made, as far as can be known without making it."""
    if not os.path.lexists(path):
        above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
        require(os.path.isdir(above), f"{path} cannot be made: {above} is not a directory, choose another --run.")
        require(os.access(above, os.W_OK), f"{path} cannot be made: {above} cannot be written, choose another --run.")
        return
    require(os.path.isdir(path), f"{path} is not a directory: choose another --run.")
    try:
        names = os.listdir(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    require(
        "config.json" not in names,
        f"{path} already holds a run: choose another --run, or continue an evolution with --resume.",
    )
    # What a killed `create` can leave behind does not count.
    held = [name for name in names if name != ".lock" and not name.endswith(".tmp")]
    require(not held, f"{path} already holds files that are not a run: choose another --run.")


def _read_checkpoint(path: Path, epoch: int) -> tuple[Tensors, dict[str, Any], str | None]:
    tensors, metadata = read_tensors(path)
    version = metadata.get("format", "")
    require(version.isdecimal() and len(version) < 9, f"{path} is damaged: its format is no number.")
    check_format(int(version), CHECKPOINT_FORMAT, str(path), metadata.get("epg"))
    require(metadata.get("epoch") == str(epoch), f"{path} is damaged: it is of another epoch than its name.")
    info = parse_json(metadata.get("info", ""), str(path))
    require(isinstance(info, dict), f"{path} is damaged: its info is not an object.")
    return tensors, info, metadata.get("config_sha256")
