"""Search PPO's settings for a family on training tasks, and append what was tried to docs/ppo_search.jsonl.

    .venv/bin/python tools/tune_ppo.py point-goal            the search behind presets.TUNED_PPO
    .venv/bin/python tools/tune_ppo.py random-hopper --steps 8192 --tasks 32
    .venv/bin/python tools/tune_ppo.py goal-ant --steps 8192 --around   minibatch and step size, from those of TUNED_PPO
    .venv/bin/python tools/tune_ppo.py point-goal --quick    two settings, for CI

Held-out tasks are never touched: all lifetimes are of Split.TRAIN.
"""

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from epg.core.runtime import use_single_thread

use_single_thread()

import numpy as np  # noqa: E402

from epg.learners import hand_made  # noqa: E402
from epg.evaluation.protocol import ranked_worst, record  # noqa: E402
from epg.warm_starts.from_policy import measure_usual  # noqa: E402
from epg.families import load_family  # noqa: E402
from epg.families.base import HostFamily  # noqa: E402
from epg import recipes as presets  # noqa: E402
from epg.core.rng import Split  # noqa: E402
from epg.settings import Settings  # noqa: E402

Grid = dict[str, tuple]

GRID: Grid = {
    "steps_per_update": (64, 128, 256),
    "passes": (4, 10, 20),
    "learning_rate": (1e-3, 3e-3),
    "entropy_weight": (0.0, 0.01),
}
PHYSICAL: tuple[Grid, ...] = (  # one after the other, each around the best so far: all at once would be 864 settings
    {"log_std": (0.0, -1.0), "normalise": ("lifetime", "family")},
    {"steps_per_update": (128, 256, 512)},
    {"learning_rate": (3e-4, 1e-3, 3e-3), "learning_rate_end": (None, 0.0)},
    {"passes": (10, 20), "entropy_weight": (0.0, 0.01)},
    {"minibatch": (32, 64, 128)},
)
AROUND: tuple[Grid, ...] = ({"minibatch": (32, 64, 128)}, {"learning_rate": (3e-4, 1e-3, 3e-3)})
QUICK: Grid = {"steps_per_update": (64,), "passes": (4,), "learning_rate": (1e-3, 3e-3), "entropy_weight": (0.0,)}


def search(
    family: str, stages: Sequence[Grid], tasks: int, steps: int, begin: presets.Opponent | None = None
) -> list[dict]:
    """Return every setting with the mean return and its standard error over training tasks, best first."""
    base = presets.preset(family, "laptop")
    best, tried = begin or presets.Opponent(log_std=base.policy.log_std), {}
    if best.normalise == "family" or any("family" in grid.get("normalise", ()) for grid in stages):
        base = measure_usual(replace(base, policy=replace(base.policy, normalise="family")))[0]
    for grid in stages:
        for values in itertools.product(*grid.values()):
            opponent = replace(best, **dict(zip(grid, values, strict=True)))
            if opponent not in tried:
                tried[opponent] = evaluate(family, base, opponent, tasks, steps)
                print(json.dumps(tried[opponent]), flush=True)
        best = max(tried, key=lambda it: tried[it]["mean"])
    return sorted(tried.values(), key=lambda one: -one["mean"])


def evaluate(family: str, base: Settings, opponent: presets.Opponent, tasks: int, steps: int) -> dict:
    """Train one setting on training tasks; return it with the mean return and its standard error."""
    settings = presets.opponent(base, family, steps, opponent)
    learner = hand_made("ppo", settings, load_family(family).spaces)
    phi = np.zeros(0, np.float32)
    result = record(settings, learner, family, tasks, 1, phi, ("ppo", "PPO"), Split.TRAIN)
    final = ranked_worst(result.final)
    return {
        "family": family,
        "steps": settings.lifetime.steps,
        **asdict(opponent),
        "tasks": tasks,
        "mean": round(float(final.mean()), 3),
        "error": round(float(final.std(ddof=1) / len(final) ** 0.5), 3),
    }


def main() -> None:
    """Search and append to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--steps", type=int, help="of a lifetime; by default those of the laptop preset")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--around", action="store_true", help="begin at TUNED_PPO, and try minibatches and step sizes")
    parser.add_argument("--record", type=Path, default=Path("docs/ppo_search.jsonl"))
    arguments = parser.parse_args()
    host = isinstance(load_family(arguments.family), HostFamily)
    stages = (QUICK,) if arguments.quick else AROUND if arguments.around else PHYSICAL if host else (GRID,)
    if arguments.steps is not None and arguments.steps <= 0:
        parser.error(f"--steps must be above zero, not {arguments.steps}.")
    steps = arguments.steps or presets.preset(arguments.family, "laptop").lifetime.steps
    begin = presets.tuned_ppo(arguments.family, steps) if arguments.around else None
    found = search(arguments.family, stages, arguments.tasks, steps, begin)
    with arguments.record.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in found)
    print("best:", json.dumps(found[0]))


if __name__ == "__main__":
    main()
