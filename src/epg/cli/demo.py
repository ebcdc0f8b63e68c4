"""The demonstration: evolve two losses, compare them and a shipped one with PPO, film what the shipped one trains."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from epg import api
from epg.cli.output import print_result, say
from epg.cli.progress import evolve_with_bar, status_line
from epg.core.errors import BadInput

FAMILIES = {
    "point-goal": "the goal is hidden: the loss sees the reward and must find out where to go",
    "point-reach": "the loss never sees a reward: it must know what is good, and what the actuators do",
}
TASKS = 20
SHIPPED = "directional-half-cheetah"
SHIPPED_OPTIONS = ("--tasks", "10", "--lifetimes", "1")


def demo(root: Path, quiet: bool = False) -> list[dict[str, Any]]:
    """Evolve a loss per family with its laptop preset, then compare each, and a shipped one, with tuned PPO.

    Tables and verdicts go to standard output, unless `quiet`.
    """
    for family in (*FAMILIES, SHIPPED):
        api.check_vacant(root / family)
    began, results = time.perf_counter(), []
    for family, why in FAMILIES.items():
        run, settings = api.prepare(api.settings_for(family, "laptop", seed=0), root / family)
        say(f"\n{family}: {why}", stderr=True)
        evolve_with_bar(run, settings, "local", None)
    say(f"\n{SHIPPED}: a loss that comes with the package. It sees the reward, not the direction", stderr=True)
    with compare_beside(root / SHIPPED / "compare") as shipped:
        for family in FAMILIES:
            with status_line(f"{family}: the loss and PPO on {TASKS} held-out tasks"):
                compared = api.compare(root / family, family, tasks=TASKS, lifetimes=1, run=root / family / "compare")
                api.report(root / family)
            results.append(_told(compared.to_dict(), quiet))
        with status_line(f"{SHIPPED}: the loss and PPO on held-out tasks"):
            out, problem = shipped.communicate()
    if shipped.returncode:
        kind = BadInput if shipped.returncode == 2 else api.ExecutorFailed
        raise kind(f"the comparison of {SHIPPED} failed: {problem.strip()}")
    results.append(_told(json.loads(out), quiet))
    with status_line("filming one of the half-cheetahs while it learns"):
        api.render(SHIPPED, out=root / SHIPPED / "film", video=False)
    say(f"\n{time.perf_counter() - began:.0f} s in all; curves and figures are below {root}", stderr=True)
    return results


@contextmanager
def compare_beside(run: Path) -> Iterator[subprocess.Popen[str]]:
    """Compare the shipped loss with PPO in a process of its own, for a second core; stop it with this one."""
    command = [sys.executable, "-m", "epg", "compare", SHIPPED, *SHIPPED_OPTIONS, "--run", str(run), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            raise


def _told(result: dict[str, Any], quiet: bool) -> dict[str, Any]:
    if not quiet:
        print_result(result, as_json=False)
        say("\n".join(api.verdicts(result)))
    return result
