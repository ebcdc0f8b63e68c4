"""The demonstration: evolve two losses and compare them with PPO, then train half-cheetahs with a shipped one."""

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
SHIPPED = "directional-half-cheetah"
SHIPPED_TASKS = 10


def demo(root: Path, quiet: bool = False) -> list[dict[str, Any]]:
    """Evolve a loss per family with its laptop preset, then compare it, and a shipped one, with tuned PPO.

    Tables and verdicts go to standard output, unless `quiet`.
    """
    for family in (*FAMILIES, SHIPPED):
        api.check_vacant(root / family)
    began, results = time.perf_counter(), []
    for family, why in FAMILIES.items():
        say(f"\n{family}: {why}", stderr=True)
        run, settings = api.prepare(api.settings_for(family, "laptop", seed=0), root / family)
        evolved = evolve_with_bar(run, settings, "local", None)
        with status_line(f"the loss and PPO on {TASKS} held-out tasks"):
            result = api.compare(evolved.run, family, tasks=TASKS, run=evolved.run / "compare").to_dict()
            api.report(evolved.run)
        results.append(_told(result, quiet))
    results.append(_told(show_shipped(root / SHIPPED), quiet))
    say(f"\n{time.perf_counter() - began:.0f} s in all; curves and figures are below {root}", stderr=True)
    return results


def show_shipped(place: Path) -> dict[str, Any]:
    """Train half-cheetahs with the shipped loss and with PPO, and film one of them while it learns."""
    say(f"\n{SHIPPED}: a loss that comes with the package. It sees the reward, not the direction", stderr=True)
    with status_line(f"the loss and PPO on {SHIPPED_TASKS} held-out tasks"):
        compared = api.compare(SHIPPED, tasks=SHIPPED_TASKS, lifetimes=1, run=place / "compare")
        api.report(compared.run)
    with status_line("filming one of them"):
        api.render(SHIPPED, out=place / "film", video=False)
    return compared.to_dict()


def _told(result: dict[str, Any], quiet: bool) -> dict[str, Any]:
    if not quiet:
        print_result(result, as_json=False)
        say("\n".join(api.verdicts(result)))
    return result
