"""What executors with several workers share: requests handed out as workers become free, results put in order.

One rule for workers that stop answering, wherever they run: the request of a straggler is given to a free worker too;
one that stays silent is killed and replaced, with a warning. A request is only ever repeated: results do not change.
"""

from __future__ import annotations

import logging
import statistics
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Generic, Self, TypeVar

from epg.core.errors import BadInput
from epg.executors import wire
from epg.executors.base import Arrays, ExecutorFailed, Work

LOGGER = logging.getLogger(__name__)

MAX_LOST = 3
"""A request that cost this many workers is given up."""
STRAGGLER_FACTOR = 3.0
"""A request under way for this many times the median is given to a free worker too."""
STUCK_FACTOR = 20.0
"""A worker busy for this many times the median, and STUCK_SECONDS, is killed and replaced."""
STUCK_SECONDS = 300.0
FIRST_SECONDS = 900.0
"""The same while nothing has been answered yet and there is no median: compilation takes minutes at most."""
TICK_SECONDS = 0.25
REMEMBERED_SECONDS = 512


class Worker:
    """A worker as the driver sees it."""

    ticket: int | None = None
    """Ticket of the request under way; None when free."""
    began: float = 0.0
    """When that was sent."""
    started: bool = True
    """Whether it can be given a request."""
    warm: bool = False
    """Whether it has answered before: its first request includes compilation."""
    waits_before: Mapping[int, float] = MappingProxyType({})
    """What `waits` said when the request was sent."""

    def waits(self) -> Mapping[int, float]:
        """Return for how many seconds each of its threads has waited for a core, as far as that is known."""
        return {}

    def starved(self) -> float:
        """Return for how long the thread that waited most has waited for a core since the request was sent."""
        return max((it - self.waits_before.get(thread, 0.0) for thread, it in self.waits().items()), default=0.0)


W = TypeVar("W", bound=Worker)


class Batch:
    """The requests of one map: which wait, which are under way, which are done."""

    def __init__(self, requests: Sequence[Arrays], on_done: Callable[[int], None] | None = None) -> None:
        self.requests = requests
        self.on_done = on_done
        self.waiting = deque(range(len(requests)))
        self.indices: dict[int, int] = {}
        """Index of the request under way with each ticket."""
        self.copies: Counter[int] = Counter()
        """Tickets under way for each request."""
        self.results: dict[int, Arrays] = {}
        self.lost: Counter[int] = Counter()
        """Workers that each request has cost."""

    @property
    def unfinished(self) -> bool:
        """Tell whether a result is still missing."""
        return len(self.results) < len(self.requests)

    def take(self, index: int, ticket: int) -> Arrays:
        """Return a request, under way from now with `ticket` and perhaps with others."""
        self.indices[ticket] = index
        self.copies[index] += 1
        return self.requests[index]

    def is_alone(self, index: int) -> bool:
        """Tell whether a request is under way with one ticket only, and not done."""
        return self.copies[index] == 1 and index not in self.results

    def finish(self, ticket: int) -> int | None:
        """Return the index of the request that `ticket` ends; None if nobody waits for it any more."""
        index = self.indices.pop(ticket, None)
        if index is None:
            return None  # answers an earlier map that failed, or outlived
        self.copies[index] -= 1
        return None if index in self.results else index

    def keep(self, index: int, result: Arrays) -> None:
        """Keep a result and say that it is there."""
        self.results[index] = result
        if self.on_done is not None:
            self.on_done(index)

    def give_back(self, ticket: int | None, guilty: bool = True) -> int:
        """Queue the request of a lost worker again, unless it runs or ended elsewhere.

        Return how many workers it has cost; one that was lost for another reason, not `guilty`, costs nothing.
        """
        index = None if ticket is None else self.finish(ticket)
        if index is None:
            return 0
        if not self.copies[index]:
            self.waiting.appendleft(index)
        self.lost[index] += guilty
        return self.lost[index]

    def ordered_results(self) -> list[Arrays]:
        """Return the results in the order of the requests."""
        return [self.results[index] for index in range(len(self.requests))]


class Pool(ABC, Generic[W]):
    """Keep workers, each with the next request as soon as it is free."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._workers: list[W] = []
        self._tickets = 0
        self._closed = False
        self._seconds: deque[float] = deque(maxlen=REMEMBERED_SECONDS)
        """What requests took workers that had answered before."""
        self._first_seconds: deque[float] = deque(maxlen=REMEMBERED_SECONDS)
        """What their first request took workers, compilation included."""
        self._checked = 0.0
        """When stragglers were last looked for."""

    def map(self, requests: Sequence[Arrays], on_done: Callable[[int], None] | None = None) -> list[Arrays]:
        """Evaluate the requests on whichever workers are free."""
        try:
            self._start_unless_closed()
            batch = Batch(requests, on_done)
            while batch.unfinished:
                self._hand_out(batch)
                self._collect(batch)
            return batch.ordered_results()
        except (BadInput, ExecutorFailed):
            raise  # the workers are sound: what they still send carries a ticket that nobody waits for
        except BaseException:
            self.close()  # interrupted perhaps within a message, after which a socket is of no use
            raise

    def _start_unless_closed(self) -> None:
        if self._closed:
            raise ExecutorFailed("this executor is closed.")
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Have as many workers as there is room for."""

    @abstractmethod
    def _send(self, worker: W, request: bytes, batch: Batch) -> None:
        """Send a worker its request."""

    @abstractmethod
    def _collect(self, batch: Batch) -> None:
        """Wait at most TICK_SECONDS for something to happen, and keep what came back."""

    @abstractmethod
    def _lose(self, worker: W, reason: str, batch: Batch) -> None:
        """Go on without a worker: its request goes back to the front, and another is started in its place."""

    @abstractmethod
    def _see_log(self, worker: W) -> str:
        """Say where there is more to read about a worker."""

    @abstractmethod
    def close(self) -> None:
        """Stop every worker."""

    def _hand_out(self, batch: Batch) -> None:
        """Give the requests that wait to the workers that are free, then look after the slow ones."""
        for worker in self._free():
            if batch.waiting:
                self._give(worker, batch.waiting.popleft(), batch)
        if time.monotonic() - self._checked > TICK_SECONDS:
            self._checked = time.monotonic()
            self._look_after_the_slow(batch)

    def _free(self) -> list[W]:
        return [worker for worker in self._workers if worker.started and worker.ticket is None]

    def _give(self, worker: W, index: int, batch: Batch) -> None:
        self._tickets += 1
        worker.ticket, worker.began, worker.waits_before = self._tickets, time.monotonic(), worker.waits()
        request = batch.take(index, self._tickets)
        self._send(worker, wire.encode(wire.REQUEST, request, ticket=str(self._tickets)), batch)

    def _look_after_the_slow(self, batch: Batch) -> None:
        """Repeat what stragglers do on free workers: whoever ends first, the result is the same. Lose the stuck."""
        typical = self._seconds or self._first_seconds  # in a first epoch, perhaps no worker answers twice
        median = statistics.median(typical) if typical else FIRST_SECONDS
        stuck = max(STUCK_SECONDS, STUCK_FACTOR * median) if typical else FIRST_SECONDS
        for worker in sorted(self._workers, key=lambda it: it.began):
            if worker.ticket is None:
                continue
            seconds, index = time.monotonic() - worker.began, batch.indices.get(worker.ticket)
            if seconds > stuck and seconds - worker.starved() > stuck:  # a busy machine is not the worker's fault
                usual = f"; the median is {median:.1f} s" if typical else ", nor has any other"
                reason = f"no answer for {seconds:.0f} s{usual}"
                LOGGER.warning("epg: a worker is replaced: %s (%s).", reason, self._see_log(worker))
                self._lose(worker, reason, batch)
            elif seconds > max(2 * TICK_SECONDS, STRAGGLER_FACTOR * median):
                free = self._free()
                if free and index is not None and batch.is_alone(index):
                    self._give(free[0], index, batch)

    def _take(self, worker: W, message: wire.Message, batch: Batch) -> None:
        """Keep what a worker answered, or raise what went wrong."""
        (self._seconds if worker.warm else self._first_seconds).append(time.monotonic() - worker.began)
        worker.ticket, worker.warm = None, True
        index = batch.finish(int(message.text["ticket"]))
        if index is None:
            return
        if message.kind == wire.BAD_INPUT:
            raise BadInput(message.text["error"])
        if message.kind == wire.FAILED:
            raise ExecutorFailed(f"{self._work.build} failed: {message.text['error']} ({self._see_log(worker)}).")
        batch.keep(index, message.arrays)

    def _give_back(self, worker: W, reason: str, batch: Batch, guilty: bool = True) -> None:
        """Queue the request of a lost worker again, or give up one that costs too many."""
        if batch.give_back(worker.ticket, guilty) >= MAX_LOST:
            lost = f"{self._work.build} cost {MAX_LOST} workers with one request"
            raise ExecutorFailed(f"{lost}; of the last: {reason} ({self._see_log(worker)}).")

    def __enter__(self) -> Self:
        try:
            self._start_unless_closed()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
