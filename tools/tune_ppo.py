"""Search PPO's settings for a family on training tasks, and append what was tried to docs/ppo_search.jsonl.

    .venv/bin/python tools/tune_ppo.py point-goal            the search behind presets.TUNED_PPO
    .venv/bin/python tools/tune_ppo.py random-hopper --steps 8192 --tasks 32
    .venv/bin/python tools/tune_ppo.py point-goal --quick    two settings, for CI

Held-out tasks are never touched: all lifetimes are of Split.TRAIN.
"""

import argparse
import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

from epg.words.runtime import use_single_thread

use_single_thread()

import numpy as np  # noqa: E402

from epg.lifetime.learner import hand_made  # noqa: E402
from epg.methods.evaluation import ranked_worst, record  # noqa: E402
from epg.methods.first import measure_usual  # noqa: E402
from epg.parts.families import load_family  # noqa: E402
from epg.parts.families.base import HostFamily  # noqa: E402
from epg.people import presets  # noqa: E402
from epg.words.keys import Split  # noqa: E402

GRID = {
    "steps_per_update": (64, 128, 256),
    "passes": (4, 10, 20),
    "learning_rate": (1e-3, 3e-3),
    "entropy_weight": (0.0, 0.01),
}
PHYSICAL = {  # the searches at 8192 steps had 256 and 512
    "steps_per_update": (128, 256),
    "passes": (10,),
    "learning_rate": (1e-3, 3e-3),
    "learning_rate_end": (None, 0.0),
}
QUICK = {"steps_per_update": (64,), "passes": (4,), "learning_rate": (1e-3, 3e-3), "entropy_weight": (0.0,)}


def search(family: str, grid: dict, tasks: int, log_stds: tuple[float, ...], steps: int | None) -> list[dict]:
    """Return every setting with the mean return and its standard error over training tasks, best first."""
    tried, base = [], presets.preset(family, "laptop")
    if grid.get("normalise") == ("family",):
        base = measure_usual(replace(base, policy=replace(base.policy, normalise="family")))[0]
    for values in itertools.product(*grid.values()):
        for log_std in log_stds or (base.policy.log_std,):
            opponent = replace(presets.Opponent(log_std=log_std), **dict(zip(grid, values, strict=True)))
            settings = presets.opponent(base, family, steps, opponent)
            learner = hand_made("ppo", settings, load_family(family).spaces)
            phi = np.zeros(0, np.float32)
            result = record(settings, learner, family, tasks, 1, phi, ("ppo", "PPO"), Split.TRAIN)
            final = ranked_worst(result.final)
            tried.append(
                {
                    "family": family,
                    "steps": settings.lifetime.steps,
                    **asdict(opponent),
                    "tasks": tasks,
                    "mean": round(float(final.mean()), 3),
                    "error": round(float(final.std(ddof=1) / len(final) ** 0.5), 3),
                }
            )
            print(json.dumps(tried[-1]), flush=True)
    return sorted(tried, key=lambda one: -one["mean"])


def main() -> None:
    """Search and append to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--log-std", type=float, nargs="*", default=())
    parser.add_argument("--normalise", choices=("lifetime", "family"), default="lifetime")
    parser.add_argument("--steps", type=int, help="of a lifetime; by default those of the laptop preset")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--record", type=Path, default=Path("docs/ppo_search.jsonl"))
    arguments = parser.parse_args()
    host = isinstance(load_family(arguments.family), HostFamily)
    grid = {**(QUICK if arguments.quick else PHYSICAL if host else GRID), "normalise": (arguments.normalise,)}
    found = search(arguments.family, grid, arguments.tasks, arguments.log_std, arguments.steps)
    with arguments.record.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in found)
    print("best:", json.dumps(found[0]))


if __name__ == "__main__":
    main()
