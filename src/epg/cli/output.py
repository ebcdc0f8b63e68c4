"""What a verb prints: tables on standard output, one line of JSON for scripts."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from epg.core.plain import plain


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def print_table(table: Table) -> None:
    """Print a table on standard output, wide enough for its content."""
    width = None if Console().is_terminal else 200
    Console(highlight=False, width=width).print(table)


def difference(interval: dict[str, float] | None) -> str:
    """Write a paired difference and its interval."""
    return "" if interval is None else "{value:+.2f} ({low:+.2f} to {high:+.2f})".format(**interval)


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the table of a comparison or of learning, or one line of JSON."""
    if as_json:
        print_json(result)
        return
    names = "learner", "steps", "updates", "return (IQM)", "95 % interval", "paired difference (mean)"
    table = Table(*names, title=f"{result['family']}: {result['tasks']} held-out tasks")
    for method in result["methods"].values():
        interval = method["interval"]
        table.add_row(
            method["label"],
            f"{method['steps']:,}",
            f"{method['updates']:,}",
            f"{interval['value']:.2f}",
            f"{interval['low']:.2f} to {interval['high']:.2f}",
            difference(method.get("difference")),
        )
    print_table(table)
    if result["lifetimes"] > 1:
        spreads = ", ".join(f"{it['spread']:.2g} ({it['label']})" for it in result["methods"].values())
        print(
            f"mean of {result['lifetimes']} lifetimes per task; standard deviation of the IQM over lifetimes: {spreads}"
        )
    for method in result["methods"].values():
        if method["nonfinite"]:
            print(f"{method['nonfinite']} tasks of {method['label']} met a non-finite number.")
    print(f"report    {result['run']}/report.html")
