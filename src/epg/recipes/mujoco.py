"""Settings that the recipes of the MuJoCo families share."""

from typing import Any

from epg.settings import EvolutionSettings, PolicySettings

POLICY = PolicySettings(log_std=-1.0, obs_stats="fixed")

ANNEALED: dict[str, Any] = {"learning_rate": 0.01, "learning_rate_end": 0.0}
"""Large first steps that fall to zero: a policy follows a loss within a thousand steps."""

EVOLUTION = EvolutionSettings(
    epochs=120,
    noise_vectors=128,
    lifetimes=128,
    task_sharing="pair",
    sigma=0.05,
    step_size=0.015,
    step_size_end=0.015,
    betas=(0.9, 0.999),
    shard=64,
)
"""Many losses, each antithetic pair with tasks of its own: the most signal per lifetime."""

ARS: dict[str, Any] = {"rule": "ars", "step_size": 0.02, "step_size_end": 0.02, "betas": (0.9, 0.9)}
"""By returns, not by ranks: a hopper that leaps and falls is left behind by the few losses that do not."""

TARGET_ONLY: dict[str, Any] = {**ARS, "step_size": 0.03, "step_size_end": 0.03, "evolves": "target"}
"""All noise is where the signal is: the loss stays the distance to a target action, and only the target evolves."""

BOTH_DIRECTIONS: dict[str, Any] = {"noise_vectors": 64}
"""Two tasks for each pair of losses, one in each direction."""
