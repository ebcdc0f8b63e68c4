"""The demonstration: from nothing to two losses that beat PPO on tasks they never saw, in minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from epg.parts.store import check_vacant
from epg.people import api
from epg.people.progress import console, evolve_with_bar, waiting
from epg.people.table import show_table

FAMILIES = {
    "point-goal": "the goal is hidden: the loss sees the reward and must find out where to go",
    "point-reach": "the loss never sees a reward: it must know what is good, and what the actuators do",
}
TASKS = 20


def demo(root: Path) -> list[dict[str, Any]]:
    """Evolve a loss per family with its laptop preset, then compare it with tuned PPO on held-out tasks."""
    for family in FAMILIES:
        check_vacant(root / family)
    began, results = time.perf_counter(), []
    for family, why in FAMILIES.items():
        console().print(f"\n[bold]{family}[/]: {why}")
        settings = api.settings_for(family, "laptop", seed=0)
        run, settings = api.prepare(settings, root / family)
        evolved = evolve_with_bar(run, settings, "local", None)
        with waiting(f"the loss and PPO on {TASKS} held-out tasks"):
            result = api.compare(family, evolved.run, tasks=TASKS, run=evolved.run / "compare")
            report = api.report(evolved.run)
        show_table(result, report)
        console().print(verdict(result))
        results.append(result)
    console().print(f"\n{time.perf_counter() - began:.0f} s in all; curves and figures are below {root}")
    return results


def verdict(result: dict[str, Any]) -> str:
    """Say in a sentence what the paired interval says, no more."""
    difference = result["difference"]
    if difference["low"] > 0:
        return "The evolved loss beats PPO: the 95 % interval of the paired difference is above zero."
    if difference["high"] < 0:
        return "PPO beats the evolved loss: the 95 % interval of the paired difference is below zero."
    return "No winner: the 95 % interval of the paired difference includes zero."
