"""What executors with several workers share: requests handed out as workers become free, results put in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from epg.core.errors import BadInput
from epg.executors import wire
from epg.executors.base import Arrays, ExecutorFailed, Work

MAX_DEATHS = 3


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
        self.deaths: Counter[int] = Counter()
        """Workers that each request has cost."""

    @property
    def unfinished(self) -> bool:
        """Tell whether a result is still missing."""
        return len(self.results) < len(self.requests)

    def take(self, ticket: int) -> Arrays:
        """Return the next request, under way from now with `ticket`."""
        return self.repeat(self.waiting.popleft(), ticket)

    def repeat(self, index: int, ticket: int) -> Arrays:
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
        self.deaths[index] += guilty
        return self.deaths[index]

    def ordered_results(self) -> list[Arrays]:
        """Return the results in the order of the requests."""
        return [self.results[index] for index in range(len(self.requests))]


class Pool(ABC):
    """Keep workers, each with the next request as soon as it is free."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._tickets = 0
        self._closed = False

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
    def _hand_out(self, batch: Batch) -> None:
        """Give the requests that wait to the workers that are free."""

    @abstractmethod
    def _collect(self, batch: Batch) -> None:
        """Wait for something to happen, and keep what came back."""

    @abstractmethod
    def close(self) -> None:
        """Stop every worker."""

    def _next_ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _keep(self, batch: Batch, message: wire.Message, log: str) -> None:
        """Keep what a worker answered, or raise what went wrong; `log` says where there is more to read."""
        index = batch.finish(int(message.text["ticket"]))
        if index is None:
            return
        if message.kind == wire.BAD_INPUT:
            raise BadInput(message.text["error"])
        if message.kind == wire.FAILED:
            raise ExecutorFailed(f"{self._work.build} failed: {message.text['error']} ({log}).")
        batch.keep(index, message.arrays)

    def _give_back(self, batch: Batch, ticket: int | None, log: str, guilty: bool = True) -> None:
        """Queue the request of a lost worker again, or give up one that keeps killing."""
        if batch.give_back(ticket, guilty) >= MAX_DEATHS:
            raise ExecutorFailed(f"{self._work.build} killed {MAX_DEATHS} workers with one request ({log}).")

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
