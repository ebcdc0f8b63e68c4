"""Executors: where shards are evaluated. A registered one is a tested one (tests/test_executors.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from epg.parts.executors.base import Arrays, Evaluate, Executor, ExecutorFailed, Work
from epg.parts.executors.inline import InlineExecutor
from epg.parts.executors.local import LocalExecutor, available_cores
from epg.words.settings import require

__all__ = [
    "EXECUTORS",
    "Arrays",
    "Evaluate",
    "Executor",
    "ExecutorFailed",
    "InlineExecutor",
    "LocalExecutor",
    "available_cores",
    "make_executor",
]

# Each takes the work, the number of processes (None: one per core) and the directory of logs (None: no logs).
EXECUTORS: dict[str, Callable[[Work, int | None, Path | None], Executor]] = {
    "inline": lambda work, processes, log_dir: InlineExecutor(work),
    "local": LocalExecutor,
}


def make_executor(
    name: str,
    build: str,
    config: dict[str, Any],
    processes: int | None = None,
    log_dir: Path | None = None,
) -> Executor:
    """Make the executor registered as `name` for the work `build` (module:function) with `config`."""
    require(name in EXECUTORS, f"there is no executor {name!r}: choose one of {', '.join(sorted(EXECUTORS))}.")
    return EXECUTORS[name](Work.describe(build, config), processes, log_dir)
