"""What a person sees while waiting: bars on standard error, so that standard output stays for results."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from epg.parts.executors.base import Cluster
from epg.parts.store import Run
from epg.words.errors import BadInput
from epg.words.settings import Settings

if TYPE_CHECKING:
    from epg.methods.evolution import Epoch, Evolved
    from epg.methods.search import Tried

SMOOTHING = 0.2


def console() -> Console:
    """Return the console that talks to people."""
    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def evolution_bar(settings: Settings, done: int) -> Iterator[tuple[Callable[[Epoch], None], Callable]]:
    """Show epoch, fitness, signal, steps per second and the time that is left; and the same of a search before it."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console()) as progress:
        status = "measuring what is usual in the family" if settings.policy.to_be_measured else "compiling"
        epochs, sought = settings.evolution.epochs, settings.search.steps * settings.searches
        bars = {"evolution": progress.add_task(settings.family, total=epochs, completed=done, status=status)}
        smooth = dict.fromkeys(("evolution", "search"), math.nan)

        def show(what: str, epoch: Epoch | Tried, more: str = "") -> None:
            new, before = epoch.fitness_mean, smooth[what]
            smooth[what] = new if math.isnan(before) else before + SMOOTHING * (new - before)
            rate = epoch.env_steps / max(epoch.seconds, 1e-9)
            status = f"fitness {smooth[what]:.2f}  best {epoch.fitness_best:.2f}  {rate / 1e3:.0f}k steps/s{more}"
            if epoch.exploded:
                status += f"  [yellow]{epoch.exploded} exploded"
            progress.update(bars[what], completed=epoch.epoch + 1, status=status)

        def on_epoch(epoch: Epoch) -> None:
            show("evolution", epoch, f"  [red]{epoch.nonfinite} non-finite" if epoch.nonfinite else "")

        def on_tried(step: Tried) -> None:
            if "search" not in bars:
                bars["search"] = progress.add_task("first target", total=sought, status="")
                progress.update(bars["evolution"], status="searching")
            show("search", step)
            if step.epoch + 1 == sought:
                progress.update(bars["evolution"], status="aiming at what was found")

        try:
            yield on_epoch, on_tried
        except BadInput:
            progress.live.transient = True  # a bar would say nothing beside the sentence
            raise


def evolve_with_bar(
    run: Run, settings: Settings, executor: str, processes: int | None, cluster: Cluster | None = None
) -> Evolved:
    """Evolve in a prepared run and show how it goes."""
    from epg.methods.evolution import evolve_run

    checkpoint = run.load_checkpoint()
    for sentence in checkpoint.skipped if checkpoint else ():
        console().print(f"epg: {sentence} The one before it is used.", soft_wrap=True)
    done = checkpoint.epoch if checkpoint else 0
    with evolution_bar(settings, done) as (on_epoch, on_tried):
        return evolve_run(run, settings, executor, processes, on_epoch, cluster, on_tried)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show that something of unknown length is going on."""
    with Progress(SpinnerColumn(), TextColumn(what), console=console(), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


@contextlib.contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Show what is going on, as it is told."""
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console(), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda text: progress.update(task, description=text)
