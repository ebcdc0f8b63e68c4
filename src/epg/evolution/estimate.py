"""What an evolution will cost, before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from epg.evolution.worker import evolution_family
from epg.executors import available_cores
from epg.families.base import JaxFamily
from epg.families.mujoco.base import MujocoFamily
from epg.settings import Settings

# Environment steps per second of one core in whole lifetimes, in company (docs/performance.md). Rough: the family, the
# number of update epochs and the machine change them several times over.
JAX_RATE, MUJOCO_RATE, GYM_RATE = 130_000, 32_000, 10_000


@dataclass(frozen=True)
class Estimate:
    """What an evolution will cost."""

    lifetimes: int
    """Lifetimes of all epochs."""
    training_steps: int
    """Environment steps in which policies train."""
    scoring_steps: int
    """Environment steps of scoring trajectories, if all of them reach the time limit."""
    processes: int
    """Processes it is divided among."""
    seconds: float
    """Wall-clock time at the rate of the family's simulator; rough."""


def estimate(settings: Settings, processes: int | None) -> Estimate:
    """Count lifetimes and steps, and guess the time."""
    family, evolution, lifetime = evolution_family(settings), settings.evolution, settings.lifetime
    lifetimes = evolution.epochs * evolution.lifetimes
    training, scoring = lifetimes * lifetime.steps, lifetimes * lifetime.scoring_episodes * family.horizon
    rate = JAX_RATE if isinstance(family, JaxFamily) else MUJOCO_RATE if isinstance(family, MujocoFamily) else GYM_RATE
    number = available_cores() if processes is None else processes
    busy = min(number, evolution.lifetimes // evolution.shard)
    return Estimate(lifetimes, training, scoring, number, (training + scoring) / (rate * busy))
