"""Figures of a run, drawn from the files it saved: no JAX, so any of them can be redrawn on a laptop.

The only module that imports matplotlib. In order: the figures, their curves, how they are drawn.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from epg.core.errors import printable, require
from epg.storage.files import make_directory, read_tensors, write_atomic
from epg.viz.run_reader import (
    Epochs,
    Floats,
    Lifetimes,
    read_config,
    read_epochs,
    read_lifetimes,
    read_object,
    read_phi_fitness,
    read_results,
)

RESAMPLES = 500  # of the tasks, for the band of a curve
POINTS = 200  # most points a curve is drawn with
MARGIN = 1.015  # of the steps: a point at the last one is drawn whole
SINGLES = 5  # single lifetimes drawn per method, as in the paper
SPREAD = 4  # ratio of the methods' steps from which the axis of steps is logarithmic
# Okabe and Ito's colours, told apart by colour-blind readers. A method keeps its colour in every figure.
COLOURS = {"epg": "#0072B2", "ppo": "#D55E00", "reinforce": "#009E73", "maml": "#CC79A7", "rl2": "#E69F00"}
COLOURS |= {"epg-i": "#56B4E9", "ppo-i": "#882255", "fixed-ppo": "#999933"}
PATHS = colormaps["Greys"]
SIGNAL, ALPHA, OTHER = "#009E73", "#CC79A7", "#555555"
STYLE = {
    "pdf.fonttype": 42,  # fonts that journals take
    "svg.hashsalt": "epg",  # without it every drawing gets new random ids
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 150,
}


def learning_curves(run: Path) -> list[Path]:
    """Draw return and KL against environment steps for every method of a run (paper, Figures 5-7)."""
    results, methods = read_results(run), read_lifetimes(run)
    with style.context(["default", STYLE]):
        rows = 2 if any((method.kl[method.finite] > 0).any() for method in methods) else 1  # nothing learns: no KL
        figure = Figure(figsize=(7, 2.2 + 1.6 * rows), layout="constrained")
        panels = figure.subplots(rows, 1, sharex=True, height_ratios=[2, 1][:rows], squeeze=False)[:, 0]
        top, bottom, floor = panels[0], panels[-1], 0.0
        if rows == 2:
            floor = scale_kl(bottom, [replace(it, kl=it.kl[it.finite]) for it in methods])  # of what is drawn
            bottom.set(ylabel="KL per update (nats)")
        for method in methods:
            _draw_lifetimes(top, method, method.episode_return, 1)
            if rows == 2:
                _draw_lifetimes(bottom, method, method.kl, method.steps_per_update, floor)
        if not any(np.isfinite(method.episode_return[method.finite]).any() for method in methods):
            top.text(0.5, 0.5, "no episode ended", transform=top.transAxes, ha="center", color="0.35")
        top.set(ylabel="episode return")
        bottom.set(xlabel="environment steps")
        _scale_steps(bottom, methods, results["steps"])
        add_legend(top)
        add_title(figure, f"{results['family']}: learning on {results['tasks']} held-out tasks")
        key = "line: interquartile mean over tasks; band: its 95 % bootstrap interval; dotted: single lifetimes"
        gaps = [f"KL below {floor:.1g} is left out"] if floor else []
        scored = "episodes of training; tables have the return of the last policy, scored after training"
        add_note(figure, [key, scored, *gaps, *_nonfinite_notes(methods)])
        return save_figure(figure, run, "learning_curves")


def fitness_over_epochs(runs: Sequence[Path], where: Path | None = None) -> list[Path]:
    """Draw fitness, and below it the share of signal and α, against epochs (paper, Figure 20).

    One run: mean, standard deviation and best of its population. Several: mean and standard deviation of their means.
    The figure goes to `where`, by default the first run.
    """
    require(len(runs) > 0, "fitness over epochs needs at least one run.")
    configs, evolutions = [read_config(run) for run in runs], [read_epochs(run) for run in runs]
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(7, 4.8), layout="constrained")
        top, bottom = figure.subplots(2, 1, height_ratios=[3, 1])
        top.sharex(bottom)
        _draw_fitness(top, evolutions)
        if len(runs) == 1:
            _draw_phi_fitness(top, read_phi_fitness(runs[0]))
        families = ", ".join(dict.fromkeys(str(config["family"]) for config in configs))
        add_title(figure, f"{families}: evolution of the loss")
        top.set(ylabel="fitness (return)")
        if _draw_shares(bottom, evolutions):
            top.tick_params(labelbottom=False)
            bottom.set(ylabel="share", ylim=(-0.05, 1.05))
            add_legend(bottom)
        else:  # nothing but zeros
            bottom.remove()
            top.set_subplotspec(figure.add_gridspec(1, 1)[0])
            figure.set_size_inches(7, 3.8)
            bottom = top
        bottom.set(xlabel="epochs done")
        bottom.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        add_legend(top)
        add_note(figure, _fitness_notes(configs, evolutions))
        return save_figure(figure, where or runs[0], "fitness")


def paths_in_the_plane(run: Path) -> list[Path]:
    """Draw where a filmed body went over its lifetime, an episode per line, light to dark (paper, Figure 15)."""
    tensors, _ = read_tensors(run / "film.safetensors")
    needed = {"lifetime/qpos", "lifetime/reset", "goal"}
    require(needed <= tensors.keys(), f"{run / 'film.safetensors'} has no path and goal to draw.")
    path, goal = tensors["lifetime/qpos"][:, :2], tensors["goal"]
    title = str(read_object(run / "film.json", "title")["title"])
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(5.4, 5.2), layout="constrained")
        axes = figure.subplots()
        draw_path(axes, path, tensors["lifetime/reset"], goal)
        add_legend(axes)
        add_title(figure, title)
        add_note(figure, [f"{len(path):,} steps of training; light: early, dark: late"])
        return save_figure(figure, run, "paths")


def draw_path(axes: Axes, path: Floats, resets: Floats, goal: Floats) -> None:
    """Draw a path [steps, 2], an episode per line, light to dark; `resets` says after which steps one ended."""
    begun = 0
    for episode in np.split(path, np.flatnonzero(resets) + 1):
        axes.plot(*episode.T, color=PATHS(0.15 + 0.85 * begun / len(path)), linewidth=1.0)
        begun += len(episode)
    axes.plot(0.0, 0.0, "o", color=COLOURS["epg"], markersize=8, label="start", zorder=3)
    axes.plot(goal[0], goal[1], "*", color=SIGNAL, markersize=15, label="goal", zorder=3)
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.set_adjustable("datalim")


def resample(values: Floats, spacing: int = 1, points: int = POINTS) -> tuple[Floats, Floats]:
    """Average `values` [tasks, columns] in at most `points` equal bins of columns `spacing` steps apart.

    Returns the step at which each bin ends, and [tasks, bins]. NaN marks a column without a value: an empty
    bin repeats the bin before it, and is NaN until the first value.
    """
    tasks, columns = values.shape
    bins = min(points, columns)
    of_column = np.arange(columns) * bins // columns
    task, column = np.nonzero(~np.isnan(values))
    total, count = np.zeros((tasks, bins)), np.zeros((tasks, bins))
    np.add.at(total, (task, of_column[column]), values[task, column])
    np.add.at(count, (task, of_column[column]), 1)
    newest = np.maximum.accumulate(np.where(count > 0, np.arange(bins), -1), axis=1)
    means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    carried = np.take_along_axis(means, np.maximum(newest, 0), axis=1)
    ends = np.searchsorted(of_column, np.arange(bins), side="right") * spacing
    return ends.astype(float), np.where(newest >= 0, carried, np.nan)


def line_of(method: str) -> tuple[str, str]:
    """Return a method's colour and line style; NAME-STEPS, another length of NAME, has its colour, dashed."""
    name, _, steps = method.rpartition("-")
    if name in COLOURS and steps.isdigit():
        return COLOURS[name], "--"
    return COLOURS.get(method, OTHER), "-"


def _draw_lifetimes(axes: Axes, method: Lifetimes, values: Floats, spacing: int, floor: float = 0.0) -> None:
    """Draw the interquartile mean, its interval and a few single lifetimes of [tasks, columns]; a gap below `floor`."""
    colour, dashes = line_of(method.name)
    values = np.where(method.finite[:, None], values, np.nan)
    # No more bins than a lifetime has values: empty ones would draw steps that nothing took.
    seldom = int(np.median(np.isfinite(values[method.finite]).sum(axis=1))) if method.finite.any() else 0
    x, y = resample(values, spacing, min(max(seldom, 1), POINTS))
    y = np.where(y < floor, np.nan, y) if floor else y
    # The same tasks for every method, so that dotted curves can be compared.
    singles = np.random.default_rng(0).permutation(len(y))[:SINGLES]
    for task in singles:
        axes.plot(x, y[task], color=colour, linewidth=0.7, linestyle=":", alpha=0.8)
    seen = np.isfinite(y).any(axis=0)
    if not seen.any():
        axes.plot([], [], color=colour, linestyle=dashes, label=method.label)  # keeps its place in the legend
        return
    middle, low, high = iqm_band(y[:, seen])
    axes.fill_between(x[seen], low, high, color=colour, alpha=0.18, linewidth=0)
    draw_line(axes, x[seen], middle, color=colour, linestyle=dashes, label=method.label)


def iqm_band(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return interquartile means over tasks and their 95 % bootstrap intervals, [tasks, points] -> [points] each.

    As in the tables, but of the tasks that have a value: NaN marks one without.
    """
    rng = np.random.default_rng(0)
    draws = [_iqm_of_known(values[rng.integers(len(values), size=len(values))]) for _ in range(RESAMPLES)]
    low, high = np.nanquantile(draws, [0.025, 0.975], axis=0)
    return _iqm_of_known(values), low, high


def _iqm_of_known(values: Floats) -> Floats:
    """Cut floor(n / 4) of the n known values from each end, and average the rest; NaN where none is known."""
    ordered, known = np.sort(values, axis=0), np.isfinite(values).sum(axis=0)  # NaN is sorted to the end
    rank, cut = np.arange(len(values))[:, None], known // 4
    inside = (rank >= cut) & (rank < known - cut)
    total = np.where(inside, ordered, 0.0).sum(axis=0)
    return np.divide(total, inside.sum(axis=0), out=np.full(len(total), np.nan), where=known > 0)


def _draw_fitness(axes: Axes, evolutions: Sequence[Epochs]) -> None:
    first, colour = evolutions[0], COLOURS["epg"]
    means = _stack([evolution.fitness_mean for evolution in evolutions])
    x, mean = first.epoch[: means.shape[1]] + 1, means.mean(axis=0)
    if len(evolutions) == 1:
        std, label, band = first.fitness_std, "mean of population", "± 1 standard deviation"
        draw_line(
            axes,
            x,
            first.fitness_best,
            color=colour,
            linewidth=0.8,
            linestyle="--",
            label="best of population",
        )
    else:
        std, label = means.std(axis=0, ddof=1), f"mean of {len(means)} runs"
        band = "± 1 standard deviation across runs"
    draw_line(axes, x, mean, color=colour, label=label)
    low, high = mean - std, mean + std
    axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0, label=band)


def _draw_phi_fitness(axes: Axes, measured: Floats) -> None:
    """Draw phi's own fitness, without noise, with standard errors."""
    if len(measured):
        epoch, fitness, error = measured.T
        axes.errorbar(epoch + 1, fitness, error, fmt="o", color="0.15", markersize=3, linewidth=1.0, label="phi itself")


def _draw_shares(axes: Axes, evolutions: Sequence[Epochs]) -> bool:
    """Draw the share of signal and the guidance, if there are any; return whether there were."""
    shares = _stack([evolution.signal_share for evolution in evolutions]).mean(axis=0)
    alphas = _stack([evolution.alpha for evolution in evolutions]).mean(axis=0)
    x = evolutions[0].epoch[: len(shares)] + 1
    if np.any(shares > 0):  # unknown where each loss meets a single task
        draw_line(axes, x, shares, color=SIGNAL, linewidth=1.0, label="signal: variance between losses / total")
    if np.any(alphas > 0):
        draw_line(axes, x, alphas, color=ALPHA, linewidth=1.0, linestyle="--", label="guidance α")
    return bool(axes.lines)


def _stack(series: Sequence[Floats]) -> Floats:
    """Stack what all runs have: [runs, epochs of the shortest]."""
    length = min(map(len, series))
    return np.stack([values[:length] for values in series])


def draw_line(axes: Axes, x: Floats, y: Floats, **how: Any) -> None:
    """Draw a line; points without a neighbour, which a line would not show, are dots."""
    line = axes.plot(x, y, **{"linewidth": 1.8, **how})[0]
    known = np.isfinite(y) & ((np.asarray(y) > 0) | (axes.get_yscale() != "log"))
    padded = np.concatenate([[False], known, [False]])
    alone = known & ~padded[:-2] & ~padded[2:]
    if alone.any():
        axes.plot(np.asarray(x)[alone], np.asarray(y)[alone], "o", color=line.get_color(), markersize=4, clip_on=False)


def _scale_steps(axes: Axes, methods: Sequence[Lifetimes], steps: int) -> None:
    """Show all steps; on a logarithmic axis where one method has many times the steps of another."""
    if max(method.steps for method in methods) < SPREAD * min(method.steps for method in methods):
        axes.set_xlim(0, MARGIN * steps)
        return
    axes.set_xscale("log")
    axes.set_xlim(0.9 * min(method.steps_per_update for method in methods), MARGIN**2 * steps)


def scale_kl(axes: Axes, methods: Sequence[Lifetimes]) -> float:
    """Make the KL axis logarithmic where it spans more than a factor of 30; return its lower end, 0 if it is linear."""
    drawn = np.concatenate([method.kl[np.isfinite(method.kl)] for method in methods])
    positive = drawn[drawn > 0]
    if len(positive) and np.percentile(positive, 99) > 30 * np.percentile(positive, 1):
        # Below it is rounding error, which would stretch the axis: a gap says so, a line would dive off the axis.
        floor = 0.5 * float(np.percentile(positive, 1))
        axes.set_yscale("log", nonpositive="mask")
        axes.set_ylim(floor, 2.0 * float(positive.max()))  # both: it is not scaled to what is drawn afterwards
        return floor
    return 0.0


def _nonfinite_notes(methods: Sequence[Lifetimes]) -> list[str]:
    bad = [(method.label, int((~method.finite).sum()), len(method.final)) for method in methods]
    return [f"{label}: {n} of {tasks} lifetimes non-finite, not drawn" for label, n, tasks in bad if n]


def _fitness_notes(configs: Sequence[dict[str, Any]], evolutions: Sequence[Epochs]) -> list[str]:
    notes = []
    nonfinite = int(np.nansum([evolution.nonfinite.sum() for evolution in evolutions]))
    if nonfinite:
        sizes = [config["settings"]["evolution"]["lifetimes"] for config in configs]
        total = sum(size * len(evolution.epoch) for size, evolution in zip(sizes, evolutions, strict=True))
        notes.append(f"{nonfinite:,} of {total:,} lifetimes non-finite, ranked worst")
    gaps = sum(int((~np.isfinite(evolution.fitness_mean)).sum()) for evolution in evolutions)
    if gaps:
        notes.append(f"{gaps} epochs without a finite mean fitness")
    lengths = {len(evolution.epoch) for evolution in evolutions}
    if len(lengths) > 1:
        notes.append(f"runs of {min(lengths)} to {max(lengths)} epochs, drawn to the shortest")
    return notes


def add_title(figure: Figure, text: str) -> None:
    """Set the title in a row of its own: beside the legend, a long family name would run into it."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=10.5, parse_math=False)  # a name may hold $


def add_legend(axes: Axes) -> None:
    """Set the legend above the axes."""
    legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, borderpad=0.1)
    for text in legend.get_texts():
        text.set_parse_math(False)


def add_note(figure: Figure, sentences: Sequence[str]) -> None:
    """Say below the figure how it was drawn."""
    if sentences:
        figure.supxlabel("\n".join(sentences), fontsize=7.5, color="0.35", parse_math=False)


def save_figure(figure: Figure, run: Path, name: str) -> list[Path]:
    """Write PNG, SVG and PDF without dates or versions, so that the same run gives the same bytes."""
    make_directory(run / "figures")
    for text in figure.findobj(Text):  # names and labels come from files
        clean = "\n".join(map(printable, text.get_text().split("\n")))
        if clean != text.get_text():
            text.set_text(clean)
    paths = []
    pdf = dict.fromkeys(("Creator", "Producer", "CreationDate"))
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None}), ("pdf", pdf)):
        drawn = io.BytesIO()
        with style.context(["default", STYLE]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box is drawn in its place
            figure.savefig(drawn, format=kind, metadata=metadata)
        figure.set_layout_engine("none")  # what the first format was laid out as, the others are: half of the time
        paths.append(run / "figures" / f"{name}.{kind}")
        write_atomic(paths[-1], drawn.getvalue())
    return paths
