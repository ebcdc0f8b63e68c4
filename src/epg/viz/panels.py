"""Figures in the paper's layout: mean, interquartile range, five dotted curves; KL per update; single runs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epg.viz.curves import (
    COLOURS,
    OTHER,
    POINTS,
    SINGLES,
    STYLE,
    add_legend,
    add_note,
    add_title,
    draw_line,
    draw_path,
    line_of,
    resample,
    scale_kl,
)
from epg.viz.run_reader import Floats, Lifetimes

__all__ = ["Axes", "Figure"]

KEY = "line: mean over tasks; band: interquartile range; dotted: single lifetimes"
COUNTED = "updates", "update", "trajectories", "epochs"  # along these axes only whole numbers are marked
IN_ROW = 3  # most panels of a row
RETURN, KL = "#D62728", "#1F77B4"  # the paper's red and blue


def new_figure(
    title: str,
    shape: tuple[int, int],
    size: tuple[float, float],
    draw: Callable[[Figure, np.ndarray], None],
    **how: Any,
) -> Figure:
    """Make a figure of `shape` axes in our style, and let `draw` fill them."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, figure.subplots(*shape, squeeze=False, **how))
        for axes in (it for it in figure.axes if it.get_xlabel() in COUNTED):
            axes.locator_params("x", integer=True, min_n_ticks=1)
        add_title(figure, title)
    return figure


def draw_panels(title: str, panels: Mapping[str, Sequence[Lifetimes]], finals: bool = False) -> Figure:
    """Draw a column per panel: return over environment steps above, KL over updates below (Figures 5-7, 10-11).

    With `finals`, a dot shows the mean final return: what a method that learns in one go comes to.
    """

    def draw(figure: Figure, axes: np.ndarray) -> None:
        for (heading, methods), (top, bottom) in zip(panels.items(), axes.T, strict=True):
            floor = scale_kl(bottom, methods)
            for method in methods:
                draw_method(top, method, method.episode_return, method.steps)
                draw_method(bottom, method, method.kl, method.kl.shape[1], floor)
                if finals:
                    colour, mean = line_of(method.name)[0], np.nanmean(method.final)
                    top.plot(method.steps, mean, "o", color=colour, markersize=6, clip_on=False, zorder=4)
            top.set(xlabel="environment steps", ylabel="episode return")
            bottom.set(xlabel="updates", ylabel="KL per update (nats)")
            top.set_title(heading, fontsize=9, loc="right", pad=_above_legend(len(methods)))
            add_legend(top)
        dots = ["dot: mean final return"] if finals else []
        add_note(figure, [KEY, *dots, *(it for name in panels for it in _gaps(name, panels[name]))])

    size = (1.0 + 5.0 * len(panels), 5.6)
    return new_figure(title, (2, len(panels)), size, draw, height_ratios=[2, 1])


def _above_legend(entries: int) -> int:
    """Return how far above the axes a heading is clear of a legend of three columns."""
    return 6 + 12 * -(-entries // 3)


def draw_method(axes: Axes, method: Lifetimes, values: Floats, last: int, floor: float = 0.0) -> None:
    """Draw mean, interquartile range and five single lifetimes of [tasks, columns] over `last` steps or updates."""
    colour, dashes = line_of(method.name)
    values = np.where(np.isfinite(values) & np.isfinite(method.final)[:, None], values, np.nan)
    x, y = bins_of(values, last)
    y = np.where(y < floor, np.nan, y) if floor else y
    for task in np.random.default_rng(0).permutation(len(y))[:SINGLES]:
        axes.plot(x, y[task], color=colour, linewidth=0.7, linestyle=":", alpha=0.8)
    seen = np.isfinite(y).any(axis=0)
    if not seen.any():
        axes.plot([], [], color=colour, linestyle=dashes, label=method.label)  # keeps its place in the legend
        return
    low, high = np.nanquantile(y[:, seen], [0.25, 0.75], axis=0)
    axes.fill_between(x[seen], low, high, color=colour, alpha=0.18, linewidth=0)
    draw_line(axes, x[seen], np.nanmean(y[:, seen], axis=0), color=colour, linestyle=dashes, label=method.label)


def _gaps(panel: str, methods: Sequence[Lifetimes]) -> list[str]:
    """Say of each method what was not finite, and is therefore not drawn."""
    notes = []
    for it in methods:
        lost, overflown = (~np.isfinite(it.final)).sum(), (~np.isfinite(it.kl)).any(axis=1).sum()
        if lost:
            notes.append(f"{panel}, {it.label}: {lost} of {len(it.final)} lifetimes non-finite, not drawn")
        elif overflown:
            notes.append(f"{panel}, {it.label}: KL overflowed in {overflown} of {len(it.final)} lifetimes")
    return notes


def bins_of(values: Floats, last: int) -> tuple[Floats, Floats]:
    """Average in as many bins as a lifetime has values (episodes, updates), at most 200; x ends at `last`."""
    seldom = int(np.median(np.isfinite(values).sum(axis=1)))
    x, y = resample(values, 1, min(max(seldom, 1), POINTS))
    return x * last / values.shape[1], y


@dataclass(frozen=True)
class SingleRun:
    """One lifetime of one method, for a column of a figure."""

    label: str
    """Who trained."""
    returns: Floats
    """Return of each episode, in order."""
    kl: Floats
    """KL of each update."""


def draw_columns(title: str, rows: Mapping[str, Sequence[tuple[str, Sequence[SingleRun]]]]) -> Figure:
    """Draw per row of tasks a column each: returns over trajectories above, KL over updates below (Figures 8, 22)."""
    columns = max(len(it) for it in rows.values())

    def draw(figure: Figure, axes: np.ndarray) -> None:
        for index, (name, tasks) in enumerate(rows.items()):
            pair = axes[2 * index : 2 * index + 2]
            for column, (heading, runs) in enumerate(tasks):
                _draw_single(pair[0, column], pair[1, column], runs, heading)
            for column in range(len(tasks), columns):
                pair[0, column].remove()
                pair[1, column].remove()
            pair[0, 0].set_ylabel(f"{name}\nreturn" if len(rows) > 1 else "return")
            pair[1, 0].set_ylabel("KL (nats)")
        add_note(
            figure, ["above: return of each trajectory; below: KL of each update. A number: mean of the last three"]
        )

    return new_figure(title, (2 * len(rows), columns), (1.0 + 2.3 * columns, 0.8 + 3.2 * len(rows)), draw)


def _draw_single(top: Axes, bottom: Axes, runs: Sequence[SingleRun], heading: str) -> None:
    alone = len(runs) == 1
    for run in runs:
        above, below = (RETURN, KL) if alone else (COLOURS.get(run.label.lower(), OTHER),) * 2
        draw_line(top, 1.0 + np.arange(len(run.returns)), run.returns, color=above, linewidth=1.1, label=run.label)
        draw_line(bottom, 1.0 + np.arange(len(run.kl)), run.kl, color=below, linewidth=0.9)
    if alone and len(runs[0].returns):
        last = f"{np.mean(runs[0].returns[-3:]):.0f}".replace("-", "−")
        top.text(0.96, 0.06, last, transform=top.transAxes, ha="right", fontsize=9)
    top.set_title(heading, fontsize=8, loc="left")
    top.set_xlabel("trajectories", fontsize=8)
    bottom.set_xlabel("updates", fontsize=8)
    if not alone:
        top.legend(fontsize=7, loc="best")


LABEL_WIDTH = 24  # characters in a line of what stands beside a row of pictures: as long as the row is high


@dataclass(frozen=True)
class Strip:
    """A row of pictures: one task, its policy at stages of its lifetime."""

    label: str
    """Which task."""
    frames: np.ndarray
    """Bytes [stages, height, width, 3]."""
    captions: tuple[str, ...]
    """A line below each picture."""


def draw_strips(title: str, strips: Sequence[Strip], note: str) -> Figure:
    """Draw a row of pictures per task, from the first policy to the last (Figures 3, 4, 14)."""

    def draw(figure: Figure, axes: np.ndarray) -> None:
        for row, strip in zip(axes, strips, strict=True):
            for place, frame, caption in zip(row, strip.frames, strip.captions, strict=True):
                place.imshow(frame, interpolation="none")
                place.set_xlabel(caption, fontsize=8)
                place.set(xticks=[], yticks=[])
                place.grid(visible=False)
                for spine in place.spines.values():
                    spine.set_visible(False)
            row[0].set_ylabel(textwrap.fill(strip.label, LABEL_WIDTH), fontsize=8)
        add_note(figure, [note])

    stages = len(strips[0].frames)
    return new_figure(title, (len(strips), stages), (0.5 + 2.0 * stages, 0.7 + 1.75 * len(strips)), draw)


@dataclass(frozen=True)
class Path2D:
    """Where a body went over its lifetime."""

    label: str
    """Which task."""
    path: Floats
    """Positions in the plane, [steps, 2]."""
    resets: Floats
    """Whether it was reset after this step, [steps]."""
    goal: Floats
    """Where it should go, [2]."""


def draw_paths(title: str, paths: Sequence[Path2D]) -> Figure:
    """Draw paths side by side, an episode per line, light to dark (Figure 15)."""

    def draw(figure: Figure, axes: np.ndarray) -> None:
        for place, it in zip(axes[0], paths, strict=True):
            draw_path(place, it.path, it.resets, it.goal)
            place.set_title(it.label, fontsize=9, loc="right")
            add_legend(place)
        add_note(figure, ["light: early in the lifetime, dark: late"])

    return new_figure(title, (1, len(paths)), (4.8 * len(paths), 4.8), draw)


@dataclass(frozen=True)
class Series:
    """A line with a band."""

    label: str
    x: Floats
    middle: Floats
    low: Floats
    high: Floats


def draw_series(
    title: str, panels: Mapping[str, Sequence[Series]], x: str, y: str, note: str, log: bool = False, mark: Any = None
) -> Figure:
    """Draw lines with bands, rows of three panels; `mark` draws something more into the axes of a panel's name."""
    labels = dict.fromkeys(it.label for lines in panels.values() for it in lines)
    colours = dict(zip(labels, cycle([*COLOURS.values(), OTHER]), strict=False))
    columns = min(len(panels), IN_ROW)
    rows = -(-len(panels) // columns)

    def draw(figure: Figure, axes: np.ndarray) -> None:
        for place in axes.flat[len(panels) :]:
            place.remove()
        for place, (heading, lines) in zip(axes.flat, panels.items(), strict=False):
            place.set(xlabel=x, yscale="log" if log else "linear")
            for it in lines:
                place.fill_between(it.x, it.low, it.high, color=colours[it.label], alpha=0.18, linewidth=0)
                draw_line(place, it.x, it.middle, color=colours[it.label], linewidth=1.3, label=it.label)
            first, last = min(it.x[0] for it in lines), max(it.x[-1] for it in lines)
            if first < last:
                place.set_xlim(first, last)
            place.set_title(heading, fontsize=9, loc="right", pad=_above_legend(len(lines)))
            if mark is not None:
                mark(place, heading)
            add_legend(place)
        for place in axes[:, 0]:
            place.set_ylabel(y)
        add_note(figure, [note])

    return new_figure(title, (rows, columns), (1.0 + 4.2 * columns, 0.6 + 3.4 * rows), draw)
