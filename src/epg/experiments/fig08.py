"""Figure 8: single lifetimes of EPG and PPO on directional-hopper."""

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import all_of, better, comparable, epg, panels, ppo, record_panel
from epg.experiments.singles import columns, turned
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_columns

FAMILY = "directional-hopper"
TITLE = "DirectionalHopper: single lifetimes of EPG and PPO"


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.family(FAMILY)),)


def _run(lab: Lab) -> Data:
    family = lab.scale.family(FAMILY)
    loss = lab.loss(family)
    return record_panel(lab, "own", "single lifetimes", [epg(loss, family), ppo(loss, family)])


def _draw(data: Data) -> Figure:
    return draw_columns(TITLE, {"": columns(panels(data)["own"], ("epg", "ppo"))})


def _verdict(data: Data) -> Verdict:
    """Judge that EPG ends above PPO, and that most of its lifetimes that begin wrongly turn around."""
    panel = panels(data)["own"]
    wrong, right = turned(panel.methods["epg"])
    measured = f"{wrong} lifetimes of EPG begin with a negative return, and {right} of them end with a positive one"
    explores = Verdict(measured, wrong > 0 and 2 * right > wrong if comparable(panel) else None, "fewer than ten tasks")
    return all_of([better(panel, "epg", "ppo"), explores])


EXPERIMENT = Experiment(
    TITLE,
    "policies trained by EPG try both directions and end hopping in the right one, while PPO's stagnate",
    _needs,
    _run,
    _draw,
    _verdict,
)
