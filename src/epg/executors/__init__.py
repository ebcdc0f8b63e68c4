"""Executors: where shards are evaluated. A registered one is a tested one (tests/test_executors.py)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epg.core.errors import require, require_count
from epg.executors.base import Arrays, Cluster, Evaluate, Executor, ExecutorFailed, Work
from epg.executors.inline import InlineExecutor
from epg.executors.local import LocalExecutor, available_cores

__all__ = [
    "EXECUTORS",
    "Arrays",
    "Cluster",
    "Evaluate",
    "Executor",
    "ExecutorFailed",
    "InlineExecutor",
    "LocalExecutor",
    "available_cores",
    "check_executor",
    "make_executor",
]

Make = Callable[[Work, int | None, Path | None, Cluster], Executor]


def _make_ray(work: Work, processes: int | None, log_dir: Path | None, cluster: Cluster) -> Executor:
    from epg.executors.ray import RayExecutor  # here: it takes a second to load, and few need it

    return RayExecutor(work, processes, log_dir, cluster)


# Each takes the work, the number of processes (None: one per core), the directory of logs (None: no logs), and
# the cluster, which only Ray looks at.
EXECUTORS: dict[str, Make] = {
    "inline": lambda work, processes, log_dir, cluster: InlineExecutor(work),
    "local": lambda work, processes, log_dir, cluster: LocalExecutor(work, processes, log_dir),
    "ray": _make_ray,
}


def check_executor(name: str, processes: int | None = None, cluster: Cluster | None = None) -> None:
    """Refuse an executor that cannot be made, or a cluster that does not answer, before anything is written."""
    require(name in EXECUTORS, f"there is no executor {name!r}: choose one of {', '.join(sorted(EXECUTORS))}.")
    if processes is not None:
        require_count("processes", processes)
    if name != "ray":
        require(cluster is None or cluster == Cluster(), "an address or cpus are for the executor ray only.")
        return
    require(
        importlib.util.find_spec("ray") is not None,
        "the executor ray needs Ray, which is not installed: install epg[ray].",
    )
    if cluster is not None and cluster.address is not None:
        from epg.executors.ray import check_address

        check_address(cluster.address)


def make_executor(
    name: str,
    build: str,
    config: dict[str, Any],
    processes: int | None = None,
    log_dir: Path | None = None,
    cluster: Cluster | None = None,
) -> Executor:
    """Make the executor registered as `name` for the work `build` (module:function) with `config`."""
    check_executor(name, processes)
    return EXECUTORS[name](Work.describe(build, config), processes, log_dir, cluster or Cluster())
