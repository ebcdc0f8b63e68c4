"""Evaluate requests in this process, one after another: the simplest executor, and the one to debug with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from epg.core.errors import BadInput
from epg.executors.base import Arrays, Evaluate, ExecutorFailed, Work, explain


class InlineExecutor:
    """Build the work when it is first asked for."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._evaluate: Evaluate | None = None

    def map(self, requests: Sequence[Arrays], on_done: Callable[[int], None] | None = None) -> list[Arrays]:
        """Evaluate each request in turn."""
        results = []
        for index, request in enumerate(requests):
            results.append(self._run(request))
            if on_done is not None:
                on_done(index)
        return results

    def _run(self, request: Arrays) -> Arrays:
        try:
            if self._evaluate is None:
                self._evaluate = self._work.load()
            return self._evaluate(request)
        except BadInput:
            raise
        except Exception as error:
            raise ExecutorFailed(f"{self._work.build} failed: {explain(error)}.") from error

    def close(self) -> None:
        """Forget what was built."""
        self._evaluate = None

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
