"""Baselines that are trained on training tasks, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from epg.baselines.fixed_policy import Search, SearchSettings
from epg.baselines.fixed_ppo import FixedPPOSettings, FixedPPOTraining
from epg.baselines.maml import MamlTraining
from epg.baselines.rl2 import RL2Training
from epg.baselines.training import Training, create_run, read_run, train, trained_policy
from epg.policies.trained import TrainedPolicy
from epg.settings import MamlSettings, RL2Settings, Settings
from epg.storage.run import Run

BASELINES: dict[str, tuple[type[Training], type]] = {
    "fixed": (Search, SearchSettings),
    "fixed-ppo": (FixedPPOTraining, FixedPPOSettings),
    "maml": (MamlTraining, MamlSettings),
    "rl2": (RL2Training, RL2Settings),
}


def start(name: str, settings: Settings, options: Any, path: Path) -> Run:
    """Make the run directory of a training, refusing what cannot be trained before anything is written."""
    BASELINES[name][0](settings, options)
    return create_run(name, settings, options, path)


def finish(
    name: str, run: Run, on_step: Callable[[Any], None] | None, executor: str, processes: int | None
) -> TrainedPolicy:
    """Train in a run directory until the budget is spent; only the search for a fixed policy uses several processes."""
    with run.lock():
        return finish_locked(name, run, on_step, executor, processes)


def finish_locked(
    name: str, run: Run, on_step: Callable[[Any], None] | None, executor: str, processes: int | None
) -> TrainedPolicy:
    """Do the same in a run that the caller has locked, and goes on to write into."""
    kind, options = BASELINES[name]
    settings, chosen = read_run(run, kind, options)
    training = Search(settings, chosen, executor, processes) if kind is Search else kind(settings, chosen)
    train(run, training, on_step)
    return trained_policy(training)
