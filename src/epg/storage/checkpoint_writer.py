"""Checkpoints written while the next epoch runs: waiting for the disk would cost over 1 % of a short epoch."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from epg.storage.run import Run


class CheckpointWriter:
    """Write the checkpoints of one run, one at a time and in order."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[Path] | None = None

    def save(self, epoch: int, tensors: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> None:
        """Begin to write a checkpoint, once the one before it is on disk."""
        self.wait()
        self._last = self._pool.submit(self._run.save_checkpoint, epoch, tensors, info)

    def wait(self) -> None:
        """Wait for the checkpoint being written, and raise what went wrong with it."""
        if self._last is not None:
            last, self._last = self._last, None
            last.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()
