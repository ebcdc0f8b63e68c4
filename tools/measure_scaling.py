"""Measure what an executor adds to a shard, compare Ray with local processes, and write docs/scaling.md.

    .venv/bin/python tools/measure_scaling.py                 minutes; writes docs/scaling.json and docs/scaling.md
    .venv/bin/python tools/measure_scaling.py --page          docs/scaling.md anew from docs/scaling.json
    .venv/bin/python tools/measure_scaling.py --quick OUT     seconds, for CI: writes into OUT instead

Both executors stay open, and their turns alternate: what else the machine does meets both.
"""

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from epg.core.runtime import use_single_thread

use_single_thread()

import numpy as np  # noqa: E402

from epg.evaluation.statistics import bootstrap  # noqa: E402
from epg.evolution.loop import Evolution  # noqa: E402
from epg.evolution.worker import BUILD, ShardResult, work_config  # noqa: E402
from epg.executors import Executor, available_cores, make_executor  # noqa: E402
from epg.recipes import preset  # noqa: E402
from epg.settings import Settings  # noqa: E402

DOCS = Path(__file__).parents[1] / "docs"
PAPER_LIFETIMES, PAPER_STEPS = 256, 128 * 64
SECONDS_PER_STEP = 60e-6
"""Of a random-hopper lifetime on one core, shards of 64: 48-66 us were measured before this project began."""
TURNS = 30
"""Epochs of each executor: enough for an interval where single epochs differ by a fifth."""


@dataclass(frozen=True)
class Measured:
    """What one run of this tool found."""

    machine: str
    processes: int
    overhead: dict[str, dict[str, float]]
    """Seconds per shard by executor: driver's CPU and wall clock, for shards of 1 and of 32 lifetimes."""
    epochs: dict[str, list[float]]
    """Seconds of each epoch by executor, in turns."""
    serial: float
    """Seconds of ask and tell."""
    load: float
    """Load average when it began: above zero, other programs were running."""


def echo(config: dict[str, Any]) -> Any:
    """Build work that does nothing: what is left of the time is the executor's."""
    return lambda request: {"fitness": np.zeros(len(request["task"]), np.float32)}


def per_shard(executor: Executor, lifetimes: int, dimension: int, count: int) -> dict[str, float]:
    """Return the driver's CPU seconds and the wall-clock seconds of a shard that takes no time."""
    request = {"phi": np.zeros((lifetimes, dimension), np.float32), "task": np.zeros(lifetimes, np.int32)}
    executor.map([request] * 20)
    wall, cpu = time.perf_counter(), time.process_time()
    executor.map([request] * count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {f"driver_{lifetimes}": cpu / count, f"wall_{lifetimes}": wall / count}


def sized(quick: bool) -> Settings:
    """Return point-goal with epochs of at least five seconds on two cores."""
    settings = preset("point-goal", "smoke" if quick else "laptop")
    return replace(settings, evolution=replace(settings.evolution, lifetimes=8 if quick else 512))


def measure(quick: bool) -> Measured:
    """Measure everything, the two executors in turns."""
    settings, processes, load = sized(quick), available_cores(), os.getloadavg()[0]
    state, overhead = Evolution(settings), {}
    population = state.ask()
    requests = [request.to_arrays() for request in state.requests(population)]
    for name in ("local", "ray"):
        with make_executor(name, "measure_scaling:echo", {}, processes) as executor:
            count, dimension = 20 if quick else 400, population.shape[1]
            overhead[name] = per_shard(executor, 1, dimension, count) | per_shard(executor, 32, dimension, count)
    epochs: dict[str, list[float]] = {"local": [], "ray": []}
    work = (BUILD, work_config(settings, None), processes)
    with make_executor("local", *work) as local, make_executor("ray", *work) as ray:
        pair, results = {"local": local, "ray": ray}, []
        for turn in range(3 if quick else TURNS + 1):
            for name in sorted(pair, reverse=turn % 2 == 1):
                began = time.perf_counter()
                results = pair[name].map(requests)
                epochs[name] += [time.perf_counter() - began] if turn else []  # the first compiles
    shards = [ShardResult.from_arrays(result) for result in results]
    state.tell(population, shards, 1.0)  # compiles
    began = time.perf_counter()
    state.tell(state.ask(), shards, 1.0)
    return Measured(_machine(), processes, overhead, epochs, time.perf_counter() - began, load)


def _machine() -> str:
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return f"{len(names)} x {names[0] if names else 'unknown'}"


def predict(measured: Measured, workers: int, lifetimes: int) -> tuple[int, float, float]:
    """Return the size of a shard, the seconds of an epoch, and the share of them that workers compute.

    Shards are as large as they can be while every worker has one; an epoch is the longest worker's shards, or the
    driver's part of all shards if that takes longer, then ask and tell.
    """
    shard = max(1, min(64, lifetimes // workers))
    shards = math.ceil(lifetimes / shard)
    cost = measured.overhead["ray"]
    slope = (cost["driver_32"] - cost["driver_1"]) / 31
    driver = cost["driver_1"] + slope * (shard - 1)
    compute = shard * PAPER_STEPS * SECONDS_PER_STEP
    rounds = math.ceil(shards / workers)
    seconds = max(rounds * (compute + cost["wall_1"]), shards * driver) + measured.serial
    return shard, seconds, lifetimes * PAPER_STEPS * SECONDS_PER_STEP / (workers * seconds)


def page(measured: Measured) -> str:
    """Write docs/scaling.md from what was measured."""
    local, ray = measured.epochs["local"], measured.epochs["ray"]
    ratio = bootstrap([r / it for r, it in zip(ray, local, strict=True)])
    rows = [
        f"| {name} | {lifetimes} | {1e3 * cost[f'driver_{lifetimes}']:.2f} | {1e3 * cost[f'wall_{lifetimes}']:.2f} |"
        for name, cost in measured.overhead.items()
        for lifetimes in (1, 32)
    ]
    predictions = []
    for workers in (16, 256, 4096):
        for lifetimes in sorted({PAPER_LIFETIMES, max(PAPER_LIFETIMES, 16 * workers)}):
            shard, seconds, share = predict(measured, workers, lifetimes)
            predictions.append(f"| {workers} | {lifetimes} | {shard} | {seconds:.2f} | {100 * share:.0f} % |")
    text = (Path(__file__).parent / "scaling.template.md").read_text()
    return text.format(
        machine=measured.machine,
        processes=measured.processes,
        load=measured.load,
        overhead="\n".join(rows),
        local=statistics.median(local),
        ray=statistics.median(ray),
        ratio=ratio,
        turns=len(local),
        serial=1e3 * measured.serial,
        microseconds=1e6 * SECONDS_PER_STEP,
        predictions="\n".join(predictions),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--quick", type=Path, metavar="OUT", help="a small measurement, written into OUT")
    arguments = parser.parse_args()
    folder = arguments.quick or DOCS
    if not arguments.page:
        found = json.dumps(asdict(measure(quick=arguments.quick is not None)), indent=1)
        (folder / "scaling.json").write_text(found + "\n")
    (folder / "scaling.md").write_text(page(Measured(**json.loads((folder / "scaling.json").read_text()))))
    print(f"wrote {folder / 'scaling.md'}")
