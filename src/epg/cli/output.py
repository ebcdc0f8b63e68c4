"""What a verb prints: tables on standard output, one line of JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from epg.core.errors import printable
from epg.core.plain import plain


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(plain(value), allow_nan=False), flush=True)


class _Console(Console):
    """The one place where text is printed: as it is, whoever wrote it, without markup, emoji and control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        clean = "\n".join(map(printable, text.split("\n")))
        return super().render_str(clean, **options | {"markup": False, "emoji": False})


def console(stderr: bool = True, width: int | None = None) -> Console:
    """Return the console for messages, or the one for results on standard output."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def say(text: object, stderr: bool = False, style: str | None = None) -> None:
    """Print text on standard output, or on standard error, without wrapping it."""
    console(stderr).print(str(text), soft_wrap=True, style=style)


def print_table(table: Table) -> None:
    """Print a table on standard output: wide enough for its content, or folded; nothing is cut."""
    for column in table.columns:
        column.overflow = "fold"
    console(stderr=False, width=None if Console().is_terminal else 200).print(table)


def difference(interval: dict[str, float] | None) -> str:
    """Write a paired difference and its interval."""
    return "" if interval is None else "{value:+.2f} ({low:+.2f} to {high:+.2f})".format(**interval)


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the table of a comparison or of learning, or one line of JSON."""
    if as_json:
        print_json(result)
        return
    names = "learner", "steps before", "steps", "updates", "return (IQM)", "95 % interval", "paired difference (mean)"
    goals = any(method["goals"] for method in result["methods"].values())
    more = ("goals per 1,000 steps (mean)",) if goals else ()
    table = Table(*names, *more, title=f"{result['family']}: {result['tasks']} held-out tasks")
    for method in result["methods"].values():
        interval = method["interval"]
        table.add_row(
            method["label"],
            f"{method['meta_steps']:,}",
            f"{method['steps']:,}",
            f"{method['updates']:,}",
            f"{interval['value']:.2f}",
            f"{interval['low']:.2f} to {interval['high']:.2f}",
            difference(method.get("difference")),
            *(["{value:.2f} ({low:.2f} to {high:.2f})".format(**method["goals"])] if goals else []),
        )
    print_table(table)
    if result["lifetimes"] > 1:
        spreads = ", ".join(f"{it['spread']:.2g} ({it['label']})" for it in result["methods"].values())
        say(
            f"mean of {result['lifetimes']} lifetimes per task; standard deviation of the IQM over lifetimes: {spreads}"
        )
    for method in result["methods"].values():
        if method["transfer"]:
            say(f"transfer  {'; '.join(method['transfer'])}")
        if method["nonfinite"]:
            say(f"{method['nonfinite']} tasks of {method['label']} met a non-finite number.")
    say(f"report    {result['run']}/report.html")


def print_seeds(seeds: Sequence[Any]) -> None:
    """Print a line per evolution of several seeds."""
    names = "seed", "epochs", "steps", "first fitness", "last fitness", "phi itself", "run"
    table = Table(*names, title=f"{seeds[0].family}: {len(seeds)} seeds")
    for it in seeds:
        own = "" if it.phi_fitness is None else f"{it.phi_fitness:.2f} ± {it.phi_error:.2f}"
        counts = str(it.seed), f"{it.epochs:,}", f"{it.env_steps:,}"
        table.add_row(*counts, f"{it.fitness_first:.2f}", f"{it.fitness_last:.2f}", own, str(it.run))
    print_table(table)
    say("fitness: mean of the population, in the first epoch and in the last ten")
    say("phi itself: its newest fitness, without noise, ± standard error")
