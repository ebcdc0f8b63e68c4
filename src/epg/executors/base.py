"""What every executor is: work described by a name and plain values, requests in, results out in order."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from epg.core.errors import BadInput, require

Arrays = dict[str, np.ndarray]
Evaluate = Callable[[Arrays], Arrays]


class ExecutorFailed(RuntimeError):
    """Say which work failed and where its log is: a defect or a dead machine, not a wrong input."""


class Executor(Protocol):
    """Evaluate requests somewhere. The place and the order of completion never change a result."""

    def map(self, requests: Sequence[Arrays], on_done: Callable[[int], None] | None = None) -> list[Arrays]:
        """Return the result of each request, in order; `on_done` gets the index of each as it ends."""
        ...

    def close(self) -> None:
        """Stop at once whatever runs."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True)
class Cluster:
    """Which Ray cluster to use, and how much of it each worker takes."""

    address: str | None = None
    """HOST:PORT of its head, or `auto` on one of its nodes; None starts a Ray on this machine."""
    cpus: float = 1.0
    """CPUs per worker, each single-threaded: 2 where Ray counts two hyper-threads of a core as two CPUs."""

    def __post_init__(self) -> None:
        # Ray itself takes whole CPUs above one, and ten-thousandths below; beneath a hundredth, typing errors begin.
        require(
            math.isfinite(self.cpus) and self.cpus >= 0.01,
            f"cpus per worker must be at least 0.01, not {self.cpus}.",
        )
        require(
            self.cpus < 1 or self.cpus == int(self.cpus),
            f"cpus per worker must be whole, or a fraction below one, not {self.cpus}.",
        )


@dataclass(frozen=True)
class Work:
    """What to evaluate, as text that any process can act on."""

    build: str
    """`module:function`; the function takes the config and returns the callable that evaluates a request."""
    config: str
    """JSON object: every process sees the same plain values, however it was started."""

    @classmethod
    def describe(cls, build: str, config: dict[str, Any]) -> Work:
        """Check and freeze a description of work."""
        require(build.count(":") == 1, f"{build!r} must name a function as module:function.")
        try:
            return cls(build, json.dumps(config, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BadInput(f"the config of {build} must be plain JSON values: {error}.") from None

    def load(self) -> Evaluate:
        """Import the function and call it with the config."""
        module, name = self.build.split(":")
        function = getattr(importlib.import_module(module), name)
        evaluate: Evaluate = function(json.loads(self.config))
        return evaluate


def explain(error: BaseException) -> str:
    """Return an error as one bounded line without a full stop: its type and what it says."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}"[:1000] if text else type(error).__name__
