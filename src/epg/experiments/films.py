"""Filmed lifetimes: pictures of the policy at stages of its lifetime, and the body's path (Figs. 3, 4, 14, 15)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from epg.experiments.base import SEED, Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import epg, number
from epg.experiments.training import Lab
from epg.storage.loss_artefact import LossArtefact
from epg.viz.camera import find_backend, open_camera
from epg.viz.panels import Figure, Strip, draw_strips
from epg.viz.recording import Episode, Film, record_film

HOPPED = 2.0  # metres that count as hopping: more than the length of a hopper, which also moves when it falls over
SIZE = (224, 168)
STAGES = 5


def film(lab: Lab, loss: LossArtefact, family: str, task: int) -> Film:
    """Film a lifetime on one held-out task; at smoke scale a short one."""
    find_backend()
    method = epg(loss, family, 64 if lab.scale.smoke else None)
    lab.say(f"{family}: filming the lifetime of held-out task {task}")
    stages = 2 if lab.scale.smoke else STAGES
    return lab.once(("film", family, task, loss.phi.tobytes()), lambda: record_film(method, SEED, task, stages))


def strip_data(films: Sequence[Film], moment: float) -> Data:
    """Shoot each film at its stages: one picture per stage, at a share `moment` of its episode."""
    rows, arrays = [], {}
    for number_, it in enumerate(films):
        with open_camera(it.family, it.task, SIZE) as camera:
            shots = [camera.shoot(one.qpos[round(moment * (len(one.qpos) - 1))]) for one in it.episodes]
        arrays[f"{number_}/frames"] = np.stack(shots)
        stages = [
            {
                "update": one.update,
                "return": one.episode_return,
                "steps": len(one.qpos) - 1,
                "travelled": travelled(one),
            }
            for one in it.episodes
        ]
        rows.append({"label": it.family.appearance.label(it.task), "family": it.family.name, "stages": stages})
    return Data({"strips": rows}, arrays)


def travelled(episode: Episode) -> float:
    """Return how far the first coordinate moved in an episode: metres forwards, of bodies that run along x."""
    return float(episode.qpos[-1, 0] - episode.qpos[0, 0])


def draw_film(title: str, note: str, data: Data) -> Figure:
    """Draw the strips."""
    strips = []
    for index, it in enumerate(data.facts["strips"]):
        captions = [f"update {one['update']}: return {number(one['return'])}" for one in it["stages"]]
        strips.append(Strip(_short(it["label"]), data.arrays[f"{index}/frames"], tuple(captions)))
    return draw_strips(title, strips, note)


def _short(label: str) -> str:
    """Break a long label of a task into lines."""
    return label.replace(", ", "\n")


def improved(metres: float | None, data: Data) -> Verdict:
    """Judge that every filmed policy ends with a higher return than it began with, and so many metres forwards."""
    ends = [(it["stages"][0]["return"], it["stages"][-1]["return"]) for it in data.facts["strips"]]
    shown = ", ".join(f"{number(first)} → {number(last)}" for first, last in ends)
    measured = f"return of the first and the last policy on {len(ends)} tasks: {shown}"
    holds = all(b > a for a, b in ends)
    if metres is not None:
        ways = [it["stages"][-1]["travelled"] for it in data.facts["strips"]]
        shown = ", ".join(map(number, ways))
        measured += f"; metres forwards of the last one: {shown} (more than {metres:.0f} counts as hopping)"
        holds = holds and min(ways) > metres
    return Verdict(measured, holds)


def film_experiment(
    family: str, title: str, claim: str, tasks: int, moment: float, note: str, metres: float | None = None
) -> Experiment:
    """Return the experiment that films the first held-out tasks of a family."""
    return Experiment(
        title,
        claim,
        partial(_needs, family),
        partial(_run, family, tasks, moment),
        partial(draw_film, title, note),
        partial(improved, metres),
    )


def _needs(family: str, scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.filmed(family)),)


def _run(family: str, tasks: int, moment: float, lab: Lab) -> Data:
    family = lab.scale.filmed(family)
    loss, count = lab.loss(family), 1 if lab.scale.smoke else tasks
    return strip_data([film(lab, loss, family, task) for task in range(count)], moment)
