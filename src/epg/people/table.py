"""Results as tables in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from epg.people.progress import console


def show_table(result: dict[str, Any], report: Path) -> None:
    """Print returns, intervals and, for a comparison, the paired difference."""
    listing = Table(
        "learner",
        "steps",
        "return (IQM)",
        "95 % interval",
        title=f"{result['family']}: {result['tasks']} held-out tasks",
    )
    for method in result["methods"].values():
        listing.add_row(method["label"], f"{method['steps']:,}", *_interval(method["interval"]))
    if "difference" in result:
        listing.add_row("paired difference (mean)", "", *_interval(result["difference"]))
    console().print(listing)
    for method in result["methods"].values():
        if method["nonfinite"]:
            console().print(f"{method['nonfinite']} lifetimes of {method['label']} met a non-finite number.")
    console().print(f"report    {report}")


def _interval(interval: dict[str, float]) -> tuple[str, str]:
    return f"{interval['value']:.2f}", f"{interval['low']:.2f} to {interval['high']:.2f}"
