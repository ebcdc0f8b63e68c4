"""Search PPO's settings for a family on training tasks, and append what was tried to docs/ppo_search.jsonl.

    .venv/bin/python tools/tune_ppo.py point-goal            the search behind a recipe's `ppo`
    .venv/bin/python tools/tune_ppo.py random-hopper --steps 8192 --tasks 32
    .venv/bin/python tools/tune_ppo.py goal-ant --steps 8192 --around   minibatch and step size, from the recipe's
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


from epg.core.rng import Split  # noqa: E402
from epg.evaluation.protocol import policy_gradient_method, ranked_worst, record  # noqa: E402
from epg.evolution.observation_stats import measure_observations  # noqa: E402
from epg.families.base import HostFamily  # noqa: E402
from epg.families.registry import find_family  # noqa: E402
from epg.lifetime.normalizer import FixedStats  # noqa: E402
from epg.recipes import PPOTuning, ppo_settings, preset, recipe_of  # noqa: E402
from epg.settings import Settings  # noqa: E402

Grid = dict[str, tuple]

GRID: Grid = {
    "steps_per_update": (64, 128, 256),
    "update_epochs": (4, 10, 20),
    "learning_rate": (1e-3, 3e-3),
    "entropy_weight": (0.0, 0.01),
}
PHYSICAL: tuple[Grid, ...] = (  # one after the other, each around the best so far: all at once would be 864 settings
    {"log_std": (0.0, -1.0), "obs_stats": ("running", "fixed")},
    {"steps_per_update": (128, 256, 512)},
    {"learning_rate": (3e-4, 1e-3, 3e-3), "learning_rate_end": (None, 0.0)},
    {"update_epochs": (10, 20), "entropy_weight": (0.0, 0.01)},
    {"minibatch": (32, 64, 128)},
)
AROUND: tuple[Grid, ...] = ({"minibatch": (32, 64, 128)}, {"learning_rate": (3e-4, 1e-3, 3e-3)})
QUICK: Grid = {
    "steps_per_update": (64,),
    "update_epochs": (4,),
    "learning_rate": (1e-3, 3e-3),
    "entropy_weight": (0.0,),
}


def search(family: str, stages: Sequence[Grid], tasks: int, steps: int, first: PPOTuning | None = None) -> list[dict]:
    """Return every setting with the mean return and its standard error over training tasks, best first."""
    base = preset(family, "laptop")
    best, tried, stats = first or PPOTuning(log_std=base.policy.log_std), {}, None
    if best.obs_stats == "fixed" or any("fixed" in grid.get("obs_stats", ()) for grid in stages):
        stats, _ = measure_observations(base)
    for grid in stages:
        for values in itertools.product(*grid.values()):
            tuning = replace(best, **dict(zip(grid, values, strict=True)))
            if tuning not in tried:
                tried[tuning] = evaluate(base, tuning, stats, tasks, steps)
                print(json.dumps(tried[tuning]), flush=True)
        best = max(tried, key=lambda it: tried[it]["mean"])
    return sorted(tried.values(), key=lambda one: -one["mean"])


def evaluate(base: Settings, tuning: PPOTuning, stats: FixedStats | None, tasks: int, steps: int) -> dict:
    """Train with one setting on training tasks; return it with the mean return and its standard error."""
    settings = ppo_settings(base, tuning, steps, stats is not None)
    result = record(policy_gradient_method(settings, "ppo", stats), tasks, 1, Split.TRAIN)
    final = ranked_worst(result.final)
    return {
        "family": base.family,
        "steps": settings.lifetime.steps,
        **asdict(tuning),
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
    parser.add_argument(
        "--around", action="store_true", help="begin at the recipe's, and try minibatches and step sizes"
    )
    parser.add_argument("--record", type=Path, default=Path("docs/ppo_search.jsonl"))
    arguments = parser.parse_args()
    host = isinstance(find_family(arguments.family), HostFamily)
    stages = (QUICK,) if arguments.quick else AROUND if arguments.around else PHYSICAL if host else (GRID,)
    if arguments.steps is not None and arguments.steps <= 0:
        parser.error(f"--steps must be above zero, not {arguments.steps}.")
    steps = arguments.steps or preset(arguments.family, "laptop").lifetime.steps
    first = recipe_of(arguments.family).tuned_ppo(steps) if arguments.around else None
    found = search(arguments.family, stages, arguments.tasks, steps, first)
    with arguments.record.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in found)
    print("best:", json.dumps(found[0]))


if __name__ == "__main__":
    main()
