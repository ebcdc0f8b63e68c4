"""Progress on standard error, so that standard output stays for results."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from epg import api
from epg.cli.output import console, say
from epg.core.errors import BadInput, printable
from epg.core.interrupts import exit_code
from epg.settings import Settings

SMOOTHING = 0.2


@contextlib.contextmanager
def resumable(again: Sequence[str]) -> Iterator[None]:
    """When a signal stops the block, say with which command it goes on."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        sentence = f"\nepg: stopped; every finished epoch is saved. Continue with: {shlex.join(again)}"
        say(sentence, stderr=True)
        sys.exit(exit_code(stopped))


@contextlib.contextmanager
def evolution_bar(settings: Settings, done: int) -> Iterator[Callable[[Any], None]]:
    """Show epoch, fitness, steps per second and the remaining time."""
    columns = (
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console()) as progress:
        measures = settings.policy.obs_stats == "fixed" and not done
        status = "measuring observation statistics, compiling" if measures else "compiling"
        bar = progress.add_task(
            printable(settings.family), total=settings.evolution.epochs, completed=done, status=status
        )
        smooth = math.nan

        def on_epoch(epoch: Any) -> None:
            nonlocal smooth
            new = epoch.fitness_mean
            smooth = new if math.isnan(smooth) else smooth + SMOOTHING * (new - smooth)
            rate = epoch.env_steps / max(epoch.seconds, 1e-9)
            status = f"fitness {smooth:.2f}  best {epoch.fitness_best:.2f}  {rate / 1e3:.0f}k steps/s"
            status += f"  {epoch.nonfinite} non-finite" if epoch.nonfinite else ""
            status += f"  {epoch.diverged} diverged" if epoch.diverged else ""
            progress.update(bar, completed=epoch.epoch + 1, status=status)

        try:
            yield on_epoch
        except BadInput:
            progress.live.transient = True  # the bar adds nothing to the sentence
            raise


def evolve_with_bar(run: Any, settings: Settings, executor: str, processes: int | None, cluster: Any = None) -> Any:
    """Evolve in a prepared run and show progress."""
    checkpoint = run.load_checkpoint()
    for sentence in checkpoint.skipped if checkpoint else ():
        say(f"epg: {sentence} The one before it is used.", stderr=True)
    with evolution_bar(settings, checkpoint.epoch if checkpoint else 0) as on_epoch:
        return api.continue_run(run, settings, executor, processes, on_epoch, cluster)


@contextlib.contextmanager
def status_line(text: str = "") -> Iterator[Callable[[str], None]]:
    """Show a spinner with a text that can change."""
    screen = console()
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(printable(text), total=None)
        yield lambda new: progress.update(task, description=printable(new))
