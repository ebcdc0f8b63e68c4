"""Figure 21: how strongly the loss at one time depends on its inputs at every time of the window."""

import numpy as np

from epg.experiments.base import Data, Experiment, Verdict
from epg.experiments.gradients import measure, needs
from epg.experiments.training import Lab
from epg.viz.panels import Figure, Series, draw_series

TITLE = "Sensitivity of the loss L_t to its inputs at each position of the window"
SHARE = 0.05  # of the summed norms that positions other than t must have to count as use of the window


def _run(lab: Lab) -> Data:
    found = measure(lab)
    facts = {"position": {family: it.position for family, it in found.items()}}
    arrays = {f"{family}/{kind}": norms for family, it in found.items() for kind, norms in it.sensitivity.items()}
    return Data(facts, arrays)


def _norms(data: Data, family: str) -> dict[str, np.ndarray]:
    """Return the norms of each kind of input, [tasks, N]."""
    return {name.rpartition("/")[2]: it for name, it in data.arrays.items() if name.startswith(f"{family}/")}


def _draw(data: Data) -> Figure:
    panels: dict[str, list[Series]] = {}
    for family in data.facts["position"]:
        panels[family] = []
        for kind, norms in _norms(data, family).items():
            low, high = np.quantile(norms, [0.25, 0.75], axis=0)
            shown = [np.where(it > 0, it, np.nan) for it in (norms.mean(axis=0), low, high)]
            panels[family].append(Series(kind, np.arange(float(norms.shape[1])), *shown))

    def mark(axes: object, family: str) -> None:
        axes.axvline(data.facts["position"][family], color="0.3", linewidth=0.8, linestyle="--")  # type: ignore[attr-defined]

    note = "norm of dL_t / dx, inputs in normalized units; mean and interquartile range over tasks; dashed: t"
    return draw_series(TITLE, panels, "window position", "‖∂L_t / ∂x‖", note, log=True, mark=mark)


def _verdict(data: Data) -> Verdict:
    """Judge that the loss depends most on its own time, and also on the rest of the window."""
    shown, holds = [], []
    for family, t in data.facts["position"].items():
        total = np.sum([norms.mean(axis=0) for norms in _norms(data, family).values()], axis=0)
        elsewhere = 1.0 - total[t] / total.sum()
        reached = np.delete(total > 1e-6 * total[t], t).mean()
        peak = "strongest at t" if total.argmax() == t else "not strongest at t"
        shown.append(
            f"{family}: {peak}, {elsewhere:.0%} of the summed norms elsewhere, {reached:.0%} of the window counts"
        )
        holds.append(total.argmax() == t and elsewhere > SHARE and reached > 0.5)
    return Verdict("; ".join(shown), bool(all(holds)))


EXPERIMENT = Experiment(
    TITLE,
    "the loss depends most on the time at which it is evaluated, and also on the entire window",
    needs,
    _run,
    _draw,
    _verdict,
)
