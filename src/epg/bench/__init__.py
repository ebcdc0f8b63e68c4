"""How fast lifetimes are: against the physics they cannot do without, and against stock Gymnasium physics.

What is compared is measured in turns in one run, on one core, and reported as medians: a machine that is slow
today is slow for all of it. Steps are environment steps that were really simulated, scoring included.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from epg.core.errors import require
from epg.core.runtime import use_single_thread
from epg.recipes import PresetName, preset, recipe_of
from epg.recipes.base import paper_lifetime
from epg.settings import Settings

STEPS = 8192  # of a lifetime, at most: the rates of a longer one are the same
BESIDE = 1024  # of a lifetime when one process is set against two
Status = Callable[[str], None]
Numbers = dict[str, float]


def bench(
    family: str,
    repeats: int = 3,
    updates: int | None = None,
    preset: PresetName = "paper",
    status: Status = lambda text: None,
) -> dict[str, Any]:
    """Measure one family with that preset's loss, `repeats` times in turns; `status` gets what is being measured."""
    use_single_thread()
    require(repeats > 0, f"repeats must be above zero, not {repeats}.")
    require(updates is None or updates > 0, f"updates must be above zero, not {updates}.")
    from epg.bench.timed_lifetimes import make_timed

    settings = bench_settings(family, updates, preset)
    runs = []
    with one_core():
        timed = make_timed(settings)
        status(f"{family}: compiling")
        timed.run()
        for turn in range(repeats):
            status(f"{family}: lifetimes, {turn + 1} of {repeats}")
            runs.append(timed.run())
    status(f"{family}: one process, then two")
    return summary(settings, runs, two_processes(settings, repeats), preset)


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this process to one core where the system allows it, so that lifetimes and bare physics share it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def bench_settings(family: str, updates: int | None = None, name: PresetName = "paper") -> Settings:
    """Return a preset's loss in the paper's lifetime: M of Table 1, N = 512; JAX families have M = 32, N = 128."""
    from epg.families.base import JaxFamily
    from epg.families.registry import find_family

    small = isinstance(find_family(family), JaxFamily)
    lifetime = replace(paper_lifetime(recipe_of(family)), learning_rate=3e-3)
    longest = 64 if small else min(lifetime.updates, STEPS // lifetime.steps_per_update)
    return Settings(
        family=family,
        loss=replace(preset(family, name).loss, window=128 if small else 512),
        lifetime=replace(lifetime, updates=updates or longest),
    )


def two_processes(settings: Settings, repeats: int) -> list[float]:
    """Return how much faster two worker processes do two shards than one does, per turn."""
    import numpy as np

    from epg.bench.timed_lifetimes import LIFETIMES, initial_losses
    from epg.evolution.worker import BUILD, ShardRequest, work_config
    from epg.executors import make_executor

    updates = max(1, min(settings.lifetime.updates, BESIDE // settings.lifetime.steps_per_update))
    short = replace(settings, lifetime=replace(settings.lifetime, updates=updates))
    lifetimes = LIFETIMES["host"]
    request = ShardRequest(
        initial_losses(short, lifetimes),
        np.zeros((lifetimes, 0), np.float32),
        np.arange(lifetimes, dtype=np.int32),
        np.array(0, np.int32),
        np.array(0.0, np.float32),
    ).to_arrays()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    work = BUILD, work_config(short, None)
    with make_executor("local", *work, processes=1) as one, make_executor("local", *work, processes=2) as two:
        for _turn in range(repeats + 1):  # the first compiles
            for number, executor in ((1, one), (2, two)):
                began = time.perf_counter()
                executor.map([request, request])
                seconds[number].append(time.perf_counter() - began)
    return [alone / both for alone, both in zip(seconds[1][1:], seconds[2][1:], strict=True)]


def summary(
    settings: Settings, runs: list[Numbers], speedups: list[float], preset: PresetName = "paper"
) -> dict[str, Any]:
    """Return medians, and the ratios that tell how much is left to gain; None where a family has no such thing."""
    parts = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    raw, stock = ([run[name] for run in runs if name in run] for name in ("raw", "stock"))
    lifetimes = [run["lifetime"] for run in runs]

    def over(values: list[float]) -> float | None:
        return statistics.median(a / b for a, b in zip(lifetimes, values, strict=True)) if values else None

    slower = over(stock)
    return {
        "family": settings.family,
        "lifetime_steps_per_s": 1e6 / parts["lifetime"],
        "raw_steps_per_s": 1e6 / statistics.median(raw) if raw else None,
        "stock_steps_per_s": 1e6 / statistics.median(stock) if stock else None,
        "time_over_raw": over(raw),
        "rate_over_stock": 1.0 / slower if slower else None,
        "two_process_speedup": statistics.median(speedups),
        "microseconds_per_step": parts,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "setting": f"{settings.lifetime.updates} updates of M = {settings.lifetime.steps_per_update}, "
        f"N = {settings.loss.window}, policy 64 x 64, first loss of preset {preset}",
        "machine": processor(),
        "runs": runs,
        "two_process_speedups": speedups,
    }


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
