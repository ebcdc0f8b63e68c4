"""Figure 13: evolved initial policies, for EPG and for PPO."""

from dataclasses import replace
from typing import Any

import numpy as np

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import comparable, epg, headed, merged, panels, ppo, record_panel, span
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

FAMILIES = {
    "RandomWalker": "random-walker",
    "DirectionalHalfCheetah": "directional-half-cheetah",
    "GoalAnt": "goal-ant",
}
TITLE = "Evolved initial policies (+I)"
EPG_I: dict[str, Any] = {"evolve_init": "epg"}
PPO_I: dict[str, Any] = {"evolve_init": "ppo"}


def _families(scale: Scale) -> dict[str, str]:
    return {"GoalAnt": scale.family("goal-ant")} if scale.smoke else FAMILIES


def _needs(scale: Scale) -> tuple[Need, ...]:
    kinds = ((), tuple(EPG_I.items()), tuple(PPO_I.items()))
    return tuple(Need("loss", family, None, changes) for family in _families(scale).values() for changes in kinds)


def _run(lab: Lab) -> Data:
    parts = []
    for title, family in _families(lab.scale).items():
        loss = lab.loss(family)
        evolved = [epg(lab.loss(family, **it), family) for it in (EPG_I, PPO_I)]
        methods = [
            epg(loss, family),
            replace(evolved[0], label="EPG+I"),
            ppo(loss, family),
            replace(evolved[1], label="PPO+I"),
        ]
        parts.append(record_panel(lab, title, title, methods))
    return merged(parts)


def _draw(data: Data) -> Figure:
    return draw_panels(TITLE, headed(data))


def _verdict(data: Data) -> Verdict:
    """Judge that the initial policy adds most on random-walker, relative to what EPG has without it."""
    found = panels(data)
    gains = {title: it.difference("epg-i", "epg") for title, it in found.items()}
    shares = {title: gains[title].value / abs(float(np.mean(it.final("epg")))) for title, it in found.items()}
    shown = [f"{title}: EPG+I − EPG {span(gains[title])}, {shares[title]:+.0%}" for title in found]
    first = next(iter(found))
    if not comparable(found[first]):
        return Verdict("; ".join(shown), None, "fewer than ten tasks")
    holds = gains[first].low > 0 and shares[first] == max(shares.values())
    return Verdict("; ".join(shown), holds)


EXPERIMENT = Experiment(
    TITLE,
    "evolving the initial policy helps most where little exploration is needed, on RandomWalker",
    _needs,
    _run,
    _draw,
    _verdict,
)
