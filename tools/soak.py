"""Evolve for many short epochs and record memory and open files: neither may grow.

.venv/bin/python tools/soak.py --epochs 1000 --out docs/images    soak.json and soak.png: local processes, and Ray
"""

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from epg.core.runtime import use_single_thread

use_single_thread()

from matplotlib.figure import Figure  # noqa: E402

from epg.evolution.loop import EpochMetrics, evolve_run  # noqa: E402
from epg.evolution.runs import create_run  # noqa: E402
from epg.recipes import preset  # noqa: E402
from epg.settings import Settings  # noqa: E402

EVERY = 10  # epochs between two looks
Series = dict[str, list[float]]


def short_epochs(epochs: int) -> Settings:
    """Return settings whose epochs take hundredths of a second."""
    settings = preset("point-goal", "smoke")
    lifetime = replace(settings.lifetime, updates=1, scoring_episodes=1)
    evolution = replace(settings.evolution, lifetimes=8, noise_vectors=4, shard=4, epochs=epochs)
    return replace(settings, lifetime=lifetime, evolution=evolution)


def offspring(pid: int) -> list[int]:
    """Return the processes below this one."""
    parents = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # ended meanwhile
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def look(pid: int) -> tuple[float, int]:
    """Return the resident megabytes and the open files of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(f"/proc/{pid}/fd"))


def is_worker(pid: int) -> bool:
    """Tell whether a process evaluates shards, locally or as an actor of Ray."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"epg.executors.worker" in line or b"ShardActor" in line


def soak(executor: str, epochs: int) -> Series:
    """Evolve; return memory and open files of the driver and of its largest worker, every ten epochs."""
    series: Series = {name: [] for name in ("epoch", "driver MB", "driver files", "worker MB", "worker files")}

    def on_epoch(epoch: EpochMetrics) -> None:
        if epoch.epoch % EVERY:
            return
        workers = [look(pid) for pid in offspring(os.getpid()) if is_worker(pid)]
        seen = (epoch.epoch, *look(os.getpid()), *(max(column) for column in zip(*workers, strict=True)))
        for name, value in zip(series, seen, strict=True):
            series[name].append(value)

    with tempfile.TemporaryDirectory() as folder:
        settings = short_epochs(epochs)
        evolve_run(create_run(settings, Path(folder) / "run"), settings, executor, 2, on_epoch)
    return series


def draw(measured: dict[str, Series], path: Path) -> None:
    """Draw megabytes and open files against epochs, a row per executor."""
    figure = Figure(figsize=(7, 2.4 * len(measured)), layout="constrained")
    for row, (executor, series) in zip(figure.subplots(len(measured), 2, squeeze=False), measured.items(), strict=True):
        for axes, unit in zip(row, ("MB", "files"), strict=True):
            for who in ("driver", "worker"):
                axes.plot(series["epoch"], series[f"{who} {unit}"], label=who)
            top = 1.2 * max(max(series[f"{who} {unit}"]) for who in ("driver", "worker"))
            axes.set(title=f"{executor}: {'open files' if unit == 'files' else unit}", xlabel="epoch", ylim=(0, top))
            axes.legend(frameon=False, loc="center right")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure the executors and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("executors", nargs="*", default=["local", "ray"])
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    measured = {executor: soak(executor, given.epochs) for executor in given.executors}
    (given.out / "soak.json").write_text(json.dumps(measured) + "\n")
    draw(measured, given.out / "soak.png")


if __name__ == "__main__":
    main()
