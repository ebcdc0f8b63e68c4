"""Figure 22: single lifetimes of EPG on random-hopper, directional-half-cheetah and goal-ant."""

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import epg, merged, panels, record_panel
from epg.experiments.singles import columns, turned
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_columns

TITLE = "Single lifetimes of EPG"
ROWS = (  # title, family of the loss, family of the tasks
    ("RandomHopper", "random-hopper", "random-hopper"),
    ("DirectionalHalfCheetah", "directional-half-cheetah", "directional-half-cheetah"),
    ("GoalAnt, forwards or backwards", "goal-ant", "goal-ant@forward-backward"),
)
SIGNED = ("DirectionalHalfCheetah", "GoalAnt, forwards or backwards")  # where a return below zero is the wrong way


def _needs(scale: Scale) -> tuple[Need, ...]:
    return tuple(Need("loss", scale.family(loss)) for _, loss, _ in ROWS)


def _run(lab: Lab) -> Data:
    def row(title: str, loss: str, tasks: str) -> Data:
        return record_panel(lab, title, title, [epg(lab.loss(lab.scale.family(loss)), lab.scale.family(tasks))])

    return merged([row(*it) for it in ROWS])


def _draw(data: Data) -> Figure:
    return draw_columns(TITLE, {it.title: columns(it, ("epg",)) for it in panels(data).values()})


def _verdict(data: Data) -> Verdict:
    """Judge that most lifetimes that begin in the wrong direction end in the right one."""
    found = {title: turned(panels(data)[title].methods["epg"]) for title in SIGNED}
    shown = [
        f"{title}: {right} of {wrong} lifetimes that begin wrongly end rightly"
        for title, (wrong, right) in found.items()
    ]
    if min(wrong for wrong, _ in found.values()) == 0:
        return Verdict("; ".join(shown), None, "no lifetime began in the wrong direction")
    return Verdict("; ".join(shown), all(2 * right > wrong for wrong, right in found.values()))


EXPERIMENT = Experiment(
    TITLE,
    "a policy that first goes in the wrong direction gets a counter signal, turns and ends with a positive return",
    _needs,
    _run,
    _draw,
    _verdict,
)
