"""Evaluate requests in worker processes on this machine, one single-threaded process per core.

A worker that dies is replaced and its request repeated, so a result never depends on which workers lived.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType

from epg.parts.executors import wire
from epg.parts.executors.base import Arrays, ExecutorFailed, Work
from epg.parts.executors.process import WorkerProcess
from epg.words.errors import BadInput
from epg.words.settings import require

MAX_DEATHS = 3
PATIENCE_SECONDS = 2.0


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalExecutor:
    """Keep `processes` workers, each with the next request as soon as it is free."""

    def __init__(self, work: Work, processes: int | None = None, log_dir: Path | None = None) -> None:
        """Remember what to do; the workers start with the context or the first map."""
        self._count = available_cores() if processes is None else processes
        require(self._count > 0, f"processes must be above zero, not {processes}.")
        self._work, self._log_dir = work, log_dir
        self._workers: list[WorkerProcess] = []
        self._tickets = 0
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Process id of each worker."""
        return [worker.process.pid for worker in self._workers]

    def map(self, requests: Sequence[Arrays], on_done: Callable[[int], None] | None = None) -> list[Arrays]:
        """Evaluate the requests on whichever workers are free."""
        try:
            self._start()
            batch = _Batch(requests)
            while batch.unfinished:
                self._hand_out(batch)
                self._collect(batch, on_done)
            return batch.ordered_results()
        except (BadInput, ExecutorFailed):
            raise  # the workers are sound: what they still send carries a ticket that nobody waits for
        except BaseException:
            self.close()  # interrupted perhaps within a message, after which a socket is of no use
            raise

    def _hand_out(self, batch: _Batch) -> None:
        for slot, worker in enumerate(self._workers):
            if worker.ticket is None and batch.waiting:
                self._tickets += 1
                if not worker.send(self._tickets, batch.take(self._tickets)):
                    self._replace(slot, batch)

    def _collect(self, batch: _Batch, on_done: Callable[[int], None] | None) -> None:
        busy = {worker.connection: slot for slot, worker in enumerate(self._workers) if worker.ticket}
        if not busy:
            return  # the only worker was just replaced
        for slot in [busy[connection] for connection in wait(list(busy))]:  # type: ignore[index]
            message = self._workers[slot].receive()
            if message is None:
                self._replace(slot, batch)
                continue
            index = batch.indices.pop(int(message.text["ticket"]), None)
            if index is None:
                continue  # answers an earlier map that failed
            batch.results[index] = self._arrays(message, slot)
            if on_done is not None:
                on_done(index)

    def _arrays(self, message: wire.Message, slot: int) -> Arrays:
        if message.kind == wire.BAD_INPUT:
            raise BadInput(message.text["error"])
        if message.kind == wire.FAILED:
            raise ExecutorFailed(f"{self._work.build} failed: {message.text['error']} ({self._see_log(slot)}).")
        return message.arrays

    def _replace(self, slot: int, batch: _Batch) -> None:
        """Start a new worker for a dead one, whose request goes back to the front."""
        dead = self._workers[slot]
        dead.close()
        self._workers[slot] = self._spawn(slot)
        if batch.give_back(dead.ticket) >= MAX_DEATHS:
            raise ExecutorFailed(
                f"{self._work.build} killed {MAX_DEATHS} workers with one request ({self._see_log(slot)})."
            )

    def _start(self) -> None:
        if self._closed:
            raise ExecutorFailed("this executor is closed.")
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

    def __enter__(self) -> LocalExecutor:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Batch:
    """The requests of one map: which wait, which are under way, which are done."""

    def __init__(self, requests: Sequence[Arrays]) -> None:
        self.requests = requests
        self.waiting = deque(range(len(requests)))
        self.indices: dict[int, int] = {}
        """Index of the request under way with each ticket."""
        self.results: dict[int, Arrays] = {}
        self.deaths: Counter[int] = Counter()
        """Workers that each request has cost."""

    @property
    def unfinished(self) -> bool:
        return len(self.results) < len(self.requests)

    def take(self, ticket: int) -> Arrays:
        """Return the next request, under way from now with `ticket`."""
        index = self.indices[ticket] = self.waiting.popleft()
        return self.requests[index]

    def give_back(self, ticket: int | None) -> int:
        """Queue the request of a dead worker again, if it was ours; return how many workers it has cost."""
        index = None if ticket is None else self.indices.pop(ticket, None)
        if index is None:
            return 0
        self.waiting.appendleft(index)
        self.deaths[index] += 1
        return self.deaths[index]

    def ordered_results(self) -> list[Arrays]:
        """Return the results in the order of the requests."""
        return [self.results[index] for index in range(len(self.requests))]
