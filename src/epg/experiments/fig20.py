"""Figure 20: fitness over epochs of several evolutions that differ in their seed."""

import numpy as np

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import number
from epg.experiments.training import Lab
from epg.viz.panels import Figure, Series, draw_series

FAMILIES = ("random-hopper", "directional-half-cheetah", "goal-ant")
TITLE = "Mean fitness of the population over epochs, several seeds"
SEEDS = 5
EDGE = 0.1  # share of the epochs that count as beginning and as end


def _needs(scale: Scale) -> tuple[Need, ...]:
    if scale.smoke:  # no evolution: the curves of the zoo
        return Need("loss", "point-goal"), Need("loss", "point-reach")
    return tuple(Need("loss", family, seed) for family in FAMILIES for seed in range(SEEDS))


def _run(lab: Lab) -> Data:
    curves: dict[str, list[np.ndarray]] = {}
    for need, loss in lab.losses.items():
        curves.setdefault(need.family, []).append(np.array(loss.manifest["curve"], float))
    length = {family: min(map(len, each)) for family, each in curves.items()}
    arrays = {family: np.stack([it[: length[family]] for it in each]) for family, each in curves.items()}
    return Data({"epochs": length}, arrays)


def _draw(data: Data) -> Figure:
    panels = {}
    for family, curves in data.arrays.items():
        mean, std = np.nanmean(curves, axis=0), np.nanstd(curves, axis=0, ddof=min(1, len(curves) - 1))
        label = f"mean of {len(curves)} seeds"
        panels[family] = [Series(label, 1.0 + np.arange(len(mean)), mean, mean - std, mean + std)]
    return draw_series(TITLE, panels, "epochs", "fitness (return)", "band: ± 1 standard deviation across seeds")


def _verdict(data: Data) -> Verdict:
    """Judge that every seed improves, by more than the seeds differ."""
    shown, holds = [], []
    for family, curves in data.arrays.items():
        edge = max(1, round(EDGE * curves.shape[1]))
        first, last = np.nanmean(curves[:, :edge], axis=1), np.nanmean(curves[:, -edge:], axis=1)
        spread = float(np.std(last, ddof=min(1, len(last) - 1)))
        shown.append(
            f"{family}: {number(first.mean())} → {number(last.mean())}, deviation across seeds {number(spread)}"
        )
        holds.append(bool((last > first).all()) and float((last - first).mean()) > spread)
    return Verdict(
        f"mean fitness in the first and last tenth of {len(curves)} evolutions, {'; '.join(shown)}", all(holds)
    )


EXPERIMENT = Experiment(
    TITLE, "evolution finds losses that perform well with every seed", _needs, _run, _draw, _verdict
)
