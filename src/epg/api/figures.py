"""`figure`: a claim of the paper, measured, drawn and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from epg.api.common import RUNS
from epg.core.errors import require
from epg.zoo import load_loss

if TYPE_CHECKING:
    from epg.experiments.registry import FigureResult

FIGURES = RUNS / "figures"


def figure(
    name: str | int,
    *,
    scale: str = "laptop",
    run: str | Path | None = None,
    loss: str | Path | None = None,
    yes: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
) -> FigureResult:
    """Reproduce a figure of the paper: 3 to 22, or "correlation".

    Losses and policies come from the zoo and from finished runs; what is missing is trained below the directory, and
    goes on there after an interruption. A figure that was measured before is drawn again from its data. `loss` is used
    instead of another loss of its family. `yes` allows a training of more than a day.
    """
    return figures([str(name)], scale=scale, run=run, loss=loss, yes=yes, on_progress=on_progress)[0]


def figures(
    names: list[str] | None = None,
    *,
    scale: str = "laptop",
    run: str | Path | None = None,
    loss: str | Path | None = None,
    yes: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
    on_figure: Callable[[FigureResult], None] = lambda result: None,
) -> list[FigureResult]:
    """Reproduce several figures, by default all, which share what is trained."""
    from epg.experiments import registry
    from epg.experiments.training import Trainer

    size = registry.find_scale(scale)
    chosen = list(registry.NAMES) if names is None else names
    for it in chosen:
        registry.find_experiment(it)
    require(loss is None or len(chosen) == 1, "a loss is for one figure: name the figure, or drop --loss.")
    given = None if loss is None else load_loss(loss)
    root = Path(run) if run is not None else FIGURES / scale
    trainer = Trainer(size, root / "trained", RUNS, on_progress)
    registry.check_time(chosen, trainer, given, yes)
    results = []
    for it in chosen:
        results.append(registry.make_figure(it, root / registry.run_name(it), trainer, given))
        on_figure(results[-1])
    return results
