"""Figure 8: single lifetimes of EPG and PPO on directional-hopper."""

import numpy as np

from epg.evaluation.statistics import bootstrap, paired_difference
from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import (
    Panel,
    all_of,
    comparable,
    epg,
    held_out_tasks,
    merged,
    panels,
    ppo,
    record_panel,
    span,
)
from epg.experiments.singles import columns, turned
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_columns

FAMILY = "directional-hopper"
DIRECTIONS = {"forwards": 1.0, "backwards": -1.0}
TITLE = "DirectionalHopper: single lifetimes of EPG and PPO"


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.family(FAMILY)),)


def _run(lab: Lab) -> Data:
    family = lab.scale.family(FAMILY)
    loss = lab.loss(family)
    data = record_panel(lab, "own", "single lifetimes", [epg(loss, family), ppo(loss, family)])
    signs = [float(getattr(it, "sign", 1.0)) for it in held_out_tasks(family, lab.scale.tasks)]
    return merged([data, Data({"signs": signs}, {})])


def _draw(data: Data) -> Figure:
    return draw_columns(TITLE, {"": columns(panels(data)["own"], ("epg", "ppo"))})


def _verdict(data: Data) -> Verdict:
    """Judge that EPG ends above PPO in both directions, and that most lifetimes that begin wrongly turn around."""
    panel = panels(data)["own"]
    wrong, right = turned(panel.methods["epg"])
    measured = f"{wrong} lifetimes of EPG begin with a negative return, and {right} of them end with a positive one"
    explores = Verdict(measured, wrong > 0 and 2 * right > wrong if comparable(panel) else None, "fewer than ten tasks")
    signs = np.asarray(data.facts["signs"])
    return all_of(
        [explores, *(in_direction(panel, name, signs == it) for name, it in DIRECTIONS.items() if it in signs)]
    )


def in_direction(panel: Panel, name: str, rows: np.ndarray) -> Verdict:
    """Judge that EPG ends above PPO on the tasks of one direction."""
    ours, theirs = (panel.final(it)[rows] for it in ("epg", "ppo"))
    gap = paired_difference(ours, theirs)
    measured = f"{name} EPG has {span(bootstrap(ours))}, PPO {span(bootstrap(theirs))}, paired difference {span(gap)}"
    return Verdict(measured, gap.low > 0 if comparable(panel) else None, "fewer than ten tasks")


EXPERIMENT = Experiment(
    TITLE,
    "policies trained by EPG try both directions and end hopping in the right one, while PPO's stagnate",
    _needs,
    _run,
    _draw,
    _verdict,
)
