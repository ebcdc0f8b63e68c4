"""Evaluate requests in worker processes on this machine, one single-threaded process per core.

A worker that dies is replaced and its request repeated, so a result never depends on which workers lived.
"""

from __future__ import annotations

import os
import time
from multiprocessing.connection import wait
from pathlib import Path

from epg.core.errors import require
from epg.executors.base import ExecutorFailed, Work
from epg.executors.pool import Batch, Pool
from epg.executors.process import WorkerProcess

PATIENCE_SECONDS = 2.0


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalExecutor(Pool):
    """Keep `processes` workers, each with the next request as soon as it is free."""

    def __init__(self, work: Work, processes: int | None = None, log_dir: Path | None = None) -> None:
        """Remember what to do; the workers start with the context or the first map."""
        super().__init__(work)
        self._count = available_cores() if processes is None else processes
        require(self._count > 0, f"processes must be above zero, not {processes}.")
        self._log_dir = log_dir
        self._workers: list[WorkerProcess] = []

    @property
    def pids(self) -> list[int]:
        """Process id of each worker."""
        return [worker.process.pid for worker in self._workers]

    def _hand_out(self, batch: Batch) -> None:
        for slot, worker in enumerate(self._workers):
            if worker.ticket is None and batch.waiting:
                ticket = self._next_ticket()
                if not worker.send(ticket, batch.take(ticket)):
                    self._replace(slot, batch)

    def _collect(self, batch: Batch) -> None:
        busy = {worker.connection: slot for slot, worker in enumerate(self._workers) if worker.ticket}
        if not busy:
            return  # the only worker was just replaced
        for slot in [busy[connection] for connection in wait(list(busy))]:  # type: ignore[index]
            message = self._workers[slot].receive()
            if message is None:
                self._replace(slot, batch)
            else:
                self._keep(batch, message, self._see_log(slot))

    def _replace(self, slot: int, batch: Batch) -> None:
        """Start a new worker for a dead one, whose request goes back to the front."""
        dead = self._workers[slot]
        dead.close()
        self._workers[slot] = self._spawn(slot)
        self._give_back(batch, dead.ticket, self._see_log(slot))

    def _start(self) -> None:
        while len(self._workers) < self._count:
            self._workers.append(self._spawn(len(self._workers)))

    def _spawn(self, slot: int) -> WorkerProcess:
        try:
            return WorkerProcess(self._work, self._log(slot))
        except OSError as error:
            raise ExecutorFailed(f"worker {slot} cannot be started: {error.strerror or error}.") from error

    def _log(self, slot: int) -> Path | None:
        return None if self._log_dir is None else self._log_dir / f"worker-{slot}.log"

    def _see_log(self, slot: int) -> str:
        return "no log was kept" if self._log_dir is None else f"see {self._log(slot)}"

    def close(self) -> None:
        """Stop every worker: asked first, killed after two seconds."""
        self._closed = True
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for worker in self._workers:
            worker.close(max(0.0, deadline - time.monotonic()))
        self._workers.clear()
