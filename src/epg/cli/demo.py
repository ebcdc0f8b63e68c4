"""The demonstration: evolve two losses and compare them with PPO on held-out tasks, in minutes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from epg import api
from epg.cli.output import print_result, say
from epg.cli.progress import evolve_with_bar, status_line

FAMILIES = {
    "point-goal": "the goal is hidden: the loss sees the reward and must find out where to go",
    "point-reach": "the loss never sees a reward: it must know what is good, and what the actuators do",
}
TASKS = 20


def demo(root: Path, quiet: bool = False) -> list[dict[str, Any]]:
    """Evolve a loss per family with its laptop preset, then compare it with tuned PPO on held-out tasks.

    Tables and verdicts go to standard output, unless `quiet`.
    """
    for family in FAMILIES:
        api.check_vacant(root / family)
    began, results = time.perf_counter(), []
    for family, why in FAMILIES.items():
        say(f"\n{family}: {why}", stderr=True)
        run, settings = api.prepare(api.settings_for(family, "laptop", seed=0), root / family)
        evolved = evolve_with_bar(run, settings, "local", None)
        with status_line(f"the loss and PPO on {TASKS} held-out tasks"):
            result = api.compare(evolved.run, family, tasks=TASKS, run=evolved.run / "compare").to_dict()
            api.report(evolved.run)
        results.append(result)
        if not quiet:
            print_result(result, as_json=False)
            say("\n".join(api.verdicts(result)))
    say(f"\n{time.perf_counter() - began:.0f} s in all; curves and figures are below {root}", stderr=True)
    return results
