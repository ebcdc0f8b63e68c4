"""Figure 15: paths of an ant that looks for its goal."""

import numpy as np

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.films import film
from epg.experiments.training import Lab
from epg.viz.panels import Figure, Path2D, draw_paths
from epg.viz.recording import Film

TITLE = "GoalAnt: paths of two lifetimes"
LATE = 0.2  # share of the episodes that count as late


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.filmed("goal-ant")),)


def _run(lab: Lab) -> Data:
    family = lab.scale.filmed("goal-ant")
    films = [film(lab, lab.loss(family), family, task) for task in range(1 if lab.scale.smoke else 2)]
    labels = [it.family.appearance.label(it.task) for it in films]
    arrays = {f"{index}/{name}": value for index, it in enumerate(films) for name, value in _arrays(it).items()}
    return Data({"paths": labels}, arrays)


def _arrays(film: Film) -> dict[str, np.ndarray]:
    marks = film.family.appearance.marks(film.task)
    goal = marks.direction if marks.goal is None else marks.goal
    assert goal is not None
    return {"path": film.path[:, :2], "reset": film.resets.astype(np.uint8), "goal": np.asarray(goal[:2], np.float32)}


def _paths(data: Data) -> list[Path2D]:
    return [
        Path2D(label, *(data.arrays[f"{index}/{name}"] for name in ("path", "reset", "goal")))
        for index, label in enumerate(data.facts["paths"])
    ]


def _draw(data: Data) -> Figure:
    return draw_paths(TITLE, _paths(data))


def headings(path: Path2D) -> np.ndarray:
    """Return for each episode the cosine between where it went and where the goal is, [episodes]."""
    found = []
    for episode in np.split(path.path, np.flatnonzero(path.resets) + 1):
        if len(episode) > 1 and np.isfinite(episode).all():
            way = episode[-1] - episode[0]
            norms = np.linalg.norm(way) * np.linalg.norm(path.goal)
            found.append(float(way @ path.goal / norms) if norms > 0 else 0.0)
    return np.array(found)


def _verdict(data: Data) -> Verdict:
    """Judge that each ant went away from its goal in some episode, and towards it in the last ones."""
    each = [headings(it) for it in _paths(data)]
    late = [float(it[-max(1, round(LATE * len(it))) :].mean()) for it in each]
    away = [int((it < 0).sum()) for it in each]
    shown = "; ".join(
        f"{data.facts['paths'][index]}: {away[index]} of {len(it)} episodes lead away, cosine with the "
        f"goal's direction in the last fifth {late[index]:.2f}"
        for index, it in enumerate(each)
    )
    return Verdict(shown, all(it > 0 for it in away) and all(it > 0.5 for it in late))


EXPERIMENT = Experiment(
    TITLE,
    "the ant explores several directions, also away from the goal, before it walks towards the goal",
    _needs,
    _run,
    _draw,
    _verdict,
)
