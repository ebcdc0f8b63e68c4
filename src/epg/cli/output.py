"""What a verb prints: tables on standard output, one line of JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from epg.core.plain import plain


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def print_table(table: Table) -> None:
    """Print a table on standard output, wide enough for its content."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    console.print(table)


def print_checks(checks: Sequence[Any]) -> None:
    """Print a line for each check of a family."""
    console = Console(highlight=False)
    for check in checks:
        mark = "[green]ok  " if check.passed else "[red]FAIL"
        problem = f": {escape(check.problem)}" if check.problem else ""
        console.print(f"{mark}[/] {check.name}{problem}", soft_wrap=True)


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the table of a comparison or of learning, or one line of JSON."""
    if as_json:
        print_json(result)
        return
    table = Table(
        "learner",
        "steps",
        "updates",
        "return (IQM)",
        "95 % interval",
        "paired difference (mean)",
        title=f"{result['family']}: {result['tasks']} held-out tasks",
    )
    for method in result["methods"].values():
        difference = method.get("difference")
        gap = "" if difference is None else "{value:+.2f} ({low:+.2f} to {high:+.2f})".format(**difference)
        interval = method["interval"]
        table.add_row(
            method["label"],
            f"{method['steps']:,}",
            f"{method['updates']:,}",
            f"{interval['value']:.2f}",
            f"{interval['low']:.2f} to {interval['high']:.2f}",
            gap,
        )
    print_table(table)
    for method in result["methods"].values():
        if method["nonfinite"]:
            print(f"{method['nonfinite']} lifetimes of {method['label']} met a non-finite number.")
    print(f"report    {result['run']}/report.html")
