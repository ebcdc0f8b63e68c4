"""Figure 17: policies of other architectures than those the loss was evolved with."""

from typing import Any

import numpy as np

from epg.evaluation.probe import ARCHITECTURES
from epg.evaluation.statistics import paired_difference
from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import Panel, comparable, epg, headed, merged, panels, record_panel, span
from epg.experiments.singles import single
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

FAMILY = "random-walker"
TITLE = "RandomWalker: policies of other architectures"
WALKS = 500.0  # final return that counts as walking: half of what a whole episode earns by staying up; a leap has 100


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.family(FAMILY)),)


def _run(lab: Lab) -> Data:
    family = lab.scale.family(FAMILY)
    loss = lab.loss(family)
    own = epg(loss, family)
    hidden = " x ".join(str(it) for it in (len(own.settings.policy.hidden), own.settings.policy.hidden[0]))
    others = {f"{hidden} {own.settings.policy.activation}, as evolved": {}, **ARCHITECTURES}
    if lab.scale.smoke:
        others = dict(list(others.items())[:2])
    methods = {name: epg(loss, family, policy=changes) for name, changes in others.items()}
    return merged([record_panel(lab, name, name, [it]) for name, it in methods.items()])


def _draw(data: Data) -> Figure:
    return draw_panels(TITLE, headed(data))


def gain(panel: Panel) -> Any:
    """Return by how much the final return is above that of the first episode, paired over tasks."""
    method = panel.methods["epg"]
    runs = [single(method, task).returns for task in range(len(method.final))]
    first = np.array([it[0] if len(it) else last for it, last in zip(runs, panel.final("epg"), strict=True)])
    return paired_difference(panel.final("epg"), first)


def _verdict(data: Data) -> Verdict:
    """Judge that policies walk, and that those of every other architecture end above where they began."""
    own, *others = panels(data).values()
    gains = {it.title: gain(it) for it in others}
    shown = [f"{it.title} {span(it.interval('epg'))}, {span(gains[it.title])} above its first episode" for it in others]
    walks = f"({WALKS:.0f} counts as walking)"
    measured = f"final return {span(own.interval('epg'))} with {own.title} {walks}; {'; '.join(shown)}"
    walk = all(it.interval("epg").low > WALKS for it in (own, *others))
    holds = walk and all(it.low > 0 for it in gains.values())
    return Verdict(measured, holds) if comparable(own) else Verdict(measured, None, "fewer than ten tasks")


EXPERIMENT = Experiment(
    TITLE,
    "the loss also trains policies of other architectures to walk, though less well",
    _needs,
    _run,
    _draw,
    _verdict,
)
