"""Environment steps per second of vectors of environments, ours and Gymnasium's own: the table in docs/environments.md.

    python tools/vector_speed.py [--envs 64] [--steps 500]

In turns, in one process and one thread, with random actions. Seconds are of the processor, so that what else runs
counts little; the best of three rounds counts. Ratios are to Gymnasium's stock environment in its SyncVectorEnv.
"""

from __future__ import annotations

import argparse
import time

import gymnasium

import epg
import epg.envs

ROUNDS = 3
SYNC = {"vectorization_mode": "sync"}
OURS = "epg/RandomHopper-v0"
VECTORS = {  # label: id and options
    "Gymnasium's Hopper-v5, SyncVectorEnv": ("Hopper-v5", SYNC),
    "ours one by one (SyncVectorEnv), one body": (OURS, {**SYNC, "task_seed": 7}),
    "ours, one body": (OURS, {"task_seed": 7}),
    "ours, one body, reference physics": (OURS, {"task_seed": 7, "physics": "reference"}),
    "ours, a new body in every episode": (OURS, {}),
}


def measure(vector: gymnasium.vector.VectorEnv, steps: int) -> float:
    """Return environment steps per second, those that only reset included."""
    vector.reset(seed=0)
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(steps)]
    vector.step(actions[0])  # compiles
    began = time.process_time()
    for action in actions:
        vector.step(action)
    return steps * vector.num_envs / (time.process_time() - began)


def main() -> None:
    """Measure all in turns, and print the best rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    given = parser.parse_args()
    made = {label: gymnasium.make_vec(name, given.envs, **options) for label, (name, options) in VECTORS.items()}
    rates: dict[str, list[float]] = {label: [] for label in made}
    for _ in range(ROUNDS):
        for label, vector in made.items():
            rates[label].append(measure(vector, given.steps))
    stock = max(rates[next(iter(rates))])
    print("| vector | steps/s | ratio |\n|---|---|---|")
    for label, found in rates.items():
        print(f"| {label} | {max(found):,.0f} | {max(found) / stock:.2f} |")


if __name__ == "__main__":
    epg.use_single_thread()
    main()
