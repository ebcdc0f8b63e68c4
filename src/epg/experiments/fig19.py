"""Figure 19: learning without resets, on goal-ant-no-reset."""

from dataclasses import replace

from epg.evaluation.statistics import Interval
from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import better, epg, headed, number, panels, ppo, record_panel, span
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

FAMILY = "goal-ant-no-reset"
TITLE = "GoalAnt without resets: EPG and PPO"


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.family(FAMILY)),)


def _run(lab: Lab) -> Data:
    family = lab.scale.family(FAMILY)
    loss = lab.loss(family)
    return record_panel(lab, "all", "return until the goal or 200 steps", [epg(loss, family), ppo(loss, family)])


def _verdict(data: Data) -> Verdict:
    """Judge that EPG, scored as its lifetime goes on, is above PPO and above zero."""
    panel = panels(data)["all"]
    found, own = better(panel, "epg", "ppo"), float(panel.final("epg").mean())
    goals = {name: it["goals"] for name, it in panel.summary["methods"].items() if it["goals"] is not None}
    shown = [f"{name.upper()} {span(Interval(**it))}" for name, it in goals.items()]
    measured = f"{found.measured}; goals reached per 1000 steps: {', '.join(shown) or 'not counted'}"
    measured += f"; mean return of EPG {number(own)}"
    return replace(found, measured=measured, holds=None if found.holds is None else found.holds and own > 0)


def _draw(data: Data) -> Figure:
    return draw_panels(TITLE, headed(data))


EXPERIMENT = Experiment(
    TITLE,
    "a loss can train an ant that is never reset to reach its goal again and again, where PPO hardly learns",
    _needs,
    _run,
    _draw,
    _verdict,
)
