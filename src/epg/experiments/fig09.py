"""Figure 9: EPG, PPO, MAML and RL² on directional-half-cheetah."""

from epg.evaluation.trained_policies import policy_methods
from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import (
    all_of,
    at_least,
    better,
    epg,
    headed,
    panels,
    paper_steps,
    ppo,
    record_panel,
)
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

FAMILY = "directional-half-cheetah"
TITLE = "DirectionalHalfCheetah: EPG, PPO, MAML and RL²"
MAML_STEPS = 4000  # of its one update, as in the MAML paper


def _needs(scale: Scale) -> tuple[Need, ...]:
    family = scale.family(FAMILY)
    return Need("loss", family), Need("maml", family), Need("rl2", family)


def _run(lab: Lab) -> Data:
    family = lab.scale.family(FAMILY)
    loss, steps = lab.loss(family), None if lab.scale.smoke else MAML_STEPS
    own = epg(loss, family)
    maml, *_ = policy_methods(lab.policy("maml", family), own.settings, steps)
    rl2 = policy_methods(lab.policy("rl2", family), own.settings)
    return record_panel(lab, "all", "all methods", [own, ppo(loss, family, paper_steps(lab.scale, family)), maml, *rl2])


def _draw(data: Data) -> Figure:
    return draw_panels(TITLE, headed(data), finals=True)


def _verdict(data: Data) -> Verdict:
    """Judge that EPG is at least as good as MAML, and RL² better than both."""
    panel = panels(data)["all"]
    return all_of([at_least(panel, "epg", "maml"), better(panel, "rl2", "epg"), better(panel, "rl2", "maml")])


EXPERIMENT = Experiment(
    TITLE,
    "EPG from random policies does as well as MAML after one update of 4000 steps, and RL² better than both",
    _needs,
    _run,
    _draw,
    _verdict,
)
