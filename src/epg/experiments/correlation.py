"""Section 4.1: Spearman's rank correlation between the gradients of the learned loss and of PPO."""

import numpy as np

from epg.experiments.base import Data, Experiment, Verdict
from epg.experiments.gradients import measure, needs
from epg.experiments.training import Lab
from epg.viz.panels import Figure, Series, draw_series

TITLE = "Correlation between the gradients of the loss and of PPO"
AROUND = (0.35, 0.65)
"""Means that count as "around 0.5"."""


def _run(lab: Lab) -> Data:
    found = measure(lab)
    means = {family: it.mean_correlation().to_dict() for family, it in found.items()}
    return Data({"correlation": means}, {family: it.correlation for family, it in found.items()})


def _draw(data: Data) -> Figure:
    panels = {}
    for family, rho in data.arrays.items():
        low, high = np.quantile(rho, [0.25, 0.75], axis=0)
        panels[family] = [Series("Spearman's ρ", 1.0 + np.arange(rho.shape[1]), rho.mean(axis=0), low, high)]

    def mark(axes: object, family: str) -> None:
        axes.axhline(0.5, color="0.3", linewidth=0.8, linestyle="--")  # type: ignore[attr-defined]

    note = "line: mean over tasks; band: interquartile range; dashed: the paper's 0.5"
    return draw_series(TITLE, panels, "update", "ρ of the two gradients", note, mark=mark)


def _verdict(data: Data) -> Verdict:
    """Judge that the mean over updates and tasks is around 0.5 for every loss."""
    found = data.facts["correlation"]
    shown = ", ".join(f"{name} {it['value']:.2f} ({it['low']:.2f} to {it['high']:.2f})" for name, it in found.items())
    low, high = AROUND
    measured = f"mean ρ over updates and tasks: {shown.replace('-0', '−0')} ({low} to {high} counts as around 0.5)"
    return Verdict(measured, all(low <= it["value"] <= high for it in found.values()))


EXPERIMENT = Experiment(
    TITLE,
    "the gradients of the learned loss correlate with those of PPO with ρ around 0.5",
    needs,
    _run,
    _draw,
    _verdict,
)
