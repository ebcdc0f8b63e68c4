"""Figure 18: trained with goals on one side, tested on both."""

import numpy as np

from epg.evaluation.fitting import settings_of
from epg.evaluation.trained_policies import policy_methods
from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import (
    all_of,
    better,
    epg,
    headed,
    merged,
    number,
    panels,
    paper_steps,
    ppo,
    record_panel,
)
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

TRAINED, SIDES = "goal-ant-right", (("right", "goal-ant-right"), ("left", "goal-ant-left"))
TITLE = "GoalAnt: trained with goals on the right side"
MAML_STEPS = 8192


def _needs(scale: Scale) -> tuple[Need, ...]:
    family = scale.family(TRAINED)
    return Need("loss", family), Need("maml", family), Need("rl2", family)


def _run(lab: Lab) -> Data:
    scale, trained = lab.scale, lab.scale.family(TRAINED)
    loss, maml, rl2 = lab.loss(trained), lab.policy("maml", trained), lab.policy("rl2", trained)
    parts = []
    for key, family in ((key, scale.family(it)) for key, it in SIDES):
        own = epg(loss, family)
        methods = [own, *policy_methods(rl2, own.settings)]
        methods += policy_methods(maml, own.settings, None if scale.smoke else MAML_STEPS)
        methods.append(ppo(loss, family, paper_steps(scale, family)))
        parts.append(record_panel(lab, key, f"goals on the {key} side", methods))
    told = "task-features" in settings_of(loss).loss.inputs
    return merged([*parts, Data({"told": told}, {})])


def _draw(data: Data) -> Figure:
    return draw_panels(TITLE, headed(data), finals=True)


def kept(data: Data) -> dict[str, float]:
    """Return for each method the share of its mean return on the trained side that it keeps on the other."""
    right, left = panels(data)["right"], panels(data)["left"]
    return {name: float(np.mean(left.final(name)) / np.mean(right.final(name))) for name in right.methods}


def _verdict(data: Data) -> Verdict:
    """Judge that on the unseen side EPG is better than RL² and than MAML after one update."""
    panel, shares = panels(data)["left"], kept(data)
    found = all_of([better(panel, "epg", "rl2"), better(panel, "epg", "maml")])
    shown = ", ".join(f"{panel.methods[name].label} {number(100 * share)} %" for name, share in shares.items())
    told = "; the loss is told where the ant sees the goal, the others are not" if data.facts["told"] else ""
    return Verdict(
        f"on the unseen side {found.measured}; share of the return kept there: {shown}{told}", found.holds, found.why
    )


EXPERIMENT = Experiment(
    TITLE,
    "a loss evolved with goals on the right side also trains ants to reach goals on the left, where RL² and MAML fail",
    _needs,
    _run,
    _draw,
    _verdict,
)
