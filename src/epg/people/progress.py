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

SMOOTHING = 0.2


def console() -> Console:
    """Return the console that talks to people."""
    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def evolution_bar(family: str, done: int, epochs: int) -> Iterator[Callable[[Epoch], None]]:
    """Show epoch, fitness, signal, steps per second and the time that is left."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    smooth = math.nan
    with Progress(*columns, console=console()) as progress:
        task = progress.add_task(family, total=epochs, completed=done, status="compiling")

        def show(epoch: Epoch) -> None:
            nonlocal smooth
            new = epoch.fitness_mean
            smooth = new if math.isnan(smooth) else smooth + SMOOTHING * (new - smooth)
            rate = epoch.env_steps / max(epoch.seconds, 1e-9)
            status = f"fitness {smooth:.2f}  best {epoch.fitness_best:.2f}  {rate / 1e3:.0f}k steps/s"
            if epoch.nonfinite:
                status += f"  [red]{epoch.nonfinite} non-finite"
            if epoch.exploded:
                status += f"  [yellow]{epoch.exploded} exploded"
            progress.update(task, completed=epoch.epoch + 1, status=status)

        try:
            yield show
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
    with evolution_bar(settings.family, done, settings.evolution.epochs) as show:
        return evolve_run(run, settings, executor, processes, show, cluster)


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
