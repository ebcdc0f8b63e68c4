"""Deploying a fixed policy on held-out tasks: nothing is learned."""

from dataclasses import replace
from typing import Any

import numpy as np

from epg.baselines.fixed_policy import FixedPolicy, score_batch
from epg.core.errors import require
from epg.core.rng import Split
from epg.evaluation.batches import BATCH, in_batches
from epg.evaluation.protocol import ranked_worst
from epg.evaluation.statistics import bootstrap
from epg.families.registry import find_family
from epg.settings import Settings


def deploy(found: FixedPolicy, settings: Settings, tasks: int, seed: int) -> dict[str, Any]:
    """Score a fixed policy on held-out tasks."""
    require(tasks > 0, f"tasks must be above zero, not {tasks}.")
    family = find_family(settings.family)
    run = score_batch(replace(settings, seed=seed), found.policy, found.obs_stats, family, Split.HELD_OUT)
    weights = np.tile(found.weights[None], (BATCH, 1, 1))
    returns = in_batches(lambda index: run(weights, np.asarray(index), np.array(0, np.int32))[0], tasks)
    return {
        "kind": "fixed-policy",
        "family": settings.family,
        "tasks": tasks,
        "seed": seed,
        "env_steps": found.env_steps,
        "interval": bootstrap(ranked_worst(returns)).to_dict(),
        "returns": returns.tolist(),
    }
