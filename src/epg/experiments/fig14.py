"""Figure 14: learning to hop backwards, after trying forwards."""

from functools import partial

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.films import HOPPED, draw_film, film, strip_data
from epg.experiments.lifetimes import held_out_tasks, number
from epg.experiments.training import Lab

TITLE = "DirectionalHopper: learning to hop backwards"
NOTE = "a task that rewards hopping backwards; left to right: one moment of an episode as learning progresses"


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.filmed("directional-hopper")),)


def _run(lab: Lab) -> Data:
    family = lab.scale.filmed("directional-hopper")
    backwards = next(index for index, it in enumerate(held_out_tasks(family, 64)) if it.sign < 0)
    return strip_data([film(lab, lab.loss(family), family, backwards)], moment=0.6)


def _verdict(data: Data) -> Verdict:
    """Judge that the last policy moves backwards, further than by falling over, and is rewarded for it."""
    stages = data.facts["strips"][0]["stages"]
    way = ", ".join(number(it["travelled"]) for it in stages)
    last = stages[-1]
    measured = f"metres forwards in an episode at {len(stages)} stages: {way}; last return {number(last['return'])}"
    measured += f" (more than {HOPPED:.0f} m backwards counts as hopping)"
    return Verdict(measured, last["travelled"] < -HOPPED and last["return"] > stages[0]["return"])


EXPERIMENT = Experiment(
    TITLE,
    "a policy trained by EPG learns to hop backwards where that is rewarded",
    _needs,
    _run,
    partial(draw_film, TITLE, NOTE),
    _verdict,
)
