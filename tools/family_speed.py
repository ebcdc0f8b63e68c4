"""Steps per second of one core for the three ways to write a family: the table in docs/custom_family.md.

    python tools/family_speed.py [ROUNDS]

The examples in turns, with the same loss, policy and lifetimes. Seconds are of the processor, so that what else the
machine does counts little; the best round counts.
"""

import sys
import time
from pathlib import Path

from epg.core.runtime import use_single_thread

use_single_thread()
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from epg.bench.timed_lifetimes import initial_losses  # noqa: E402
from epg.core.rng import Split  # noqa: E402
from epg.core.types import MetaParams  # noqa: E402
from epg.evolution.task_sampling import task_sampler  # noqa: E402
from epg.families.registry import find_family  # noqa: E402
from epg.learners.registry import evolution_learner  # noqa: E402
from epg.lifetime.batch import batch_of_lifetimes, inner_config  # noqa: E402
from epg.policies.mlp import MlpPolicy  # noqa: E402
from epg.settings import LifetimeSettings, Settings  # noqa: E402

FAMILIES = ("my_family:WINDY_CART", "my_mujoco_family:SWINGER", "my_gym_family:PLANETS")
LIFETIMES = 32


def lifetimes_of(family: str):
    """Return a function that runs 32 lifetimes of 2048 steps and returns how many steps that took in all."""
    settings = Settings(family=f"examples.{family}", lifetime=LifetimeSettings(updates=64))
    found = find_family(settings.family)
    policy = MlpPolicy(settings.policy, found.spaces)
    config = inner_config(settings, evolution_learner(settings, found.spaces, policy), policy, found, None)
    batch = batch_of_lifetimes(config, found, task_sampler(found, settings.seed, Split.TRAIN))
    phi, rows = jnp.asarray(initial_losses(settings, LIFETIMES)), jnp.arange(LIFETIMES)
    meta = MetaParams(phi, jnp.float32(0), jnp.zeros((LIFETIMES, 0)))
    return lambda: int(np.sum(jax.block_until_ready(batch(meta, rows, jnp.int32(0))).env_steps))


def main(rounds: int) -> None:
    """Print the table."""
    runs = {family: lifetimes_of(family) for family in FAMILIES}
    best = dict.fromkeys(FAMILIES, 0.0)
    for turn in range(rounds + 1):
        for family, run in runs.items():
            began = time.process_time()
            steps = run()
            if turn:  # the first one compiles
                best[family] = max(best[family], steps / (time.process_time() - began))
    for family, rate in best.items():
        print(f"{family:28} {rate:9.0f} steps/s  {1e6 / rate:6.1f} us a step")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
