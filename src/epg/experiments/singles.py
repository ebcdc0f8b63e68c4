"""Single lifetimes, a column per task (Figs. 8 and 22), and how often one that began wrongly turned around."""

from __future__ import annotations

import numpy as np

from epg.experiments.lifetimes import Panel
from epg.viz.panels import SingleRun
from epg.viz.run_reader import Lifetimes

COLUMNS = 5


def columns(panel: Panel, methods: tuple[str, ...]) -> list[tuple[str, list[SingleRun]]]:
    """Return the first tasks of a panel, each with a run per method."""
    count = min(COLUMNS, panel.summary["tasks"])
    return [(f"task {task}", [single(panel.methods[name], task) for name in methods]) for task in range(count)]


def single(method: Lifetimes, task: int) -> SingleRun:
    """Return one lifetime: the return of each of its episodes, and the KL of each update."""
    returns = method.episode_return[task]
    return SingleRun(method.label, returns[np.isfinite(returns)], method.kl[task])


def turned(method: Lifetimes) -> tuple[int, int]:
    """Count lifetimes whose first episode has a negative return, and those of them that end with a positive one."""
    first = np.array(
        [it.returns[0] if len((it := single(method, task)).returns) else 0.0 for task in range(len(method.kl))]
    )
    wrong = first < 0
    return int(wrong.sum()), int((wrong & (method.final > 0)).sum())
