"""The verb `bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rich.table import Table
from tyro.conf import Positional

from epg import api
from epg.cli.arguments import Family, Verb
from epg.cli.output import print_json, print_table, say
from epg.cli.progress import status_line


@dataclass(frozen=True, kw_only=True)
class Bench(Verb):
    """Measure the environment steps per second of whole lifetimes, against physics alone."""

    family: Positional[Family] = "random-hopper"
    """Name of a family or module:attribute."""
    repeats: int = 3
    """Timed runs of everything, in turns; medians are reported."""
    updates: int | None = None
    """Length of the lifetimes in updates; by default the paper's, at most 8192 steps."""
    preset: Literal["laptop", "paper"] = "paper"
    """Whose loss is measured; window, M and policy are the paper's."""

    def main(self) -> None:
        """Measure with the paper's network sizes."""
        with status_line() as status:
            result = api.bench(**self.arguments, status=status)
        if self.json:
            print_json(result)
            return
        print_table(_listing(result))
        say(f"{result['setting']}; {result['machine']}; peak memory {result['peak_memory_mb']:,.0f} MB")


def _listing(result: dict[str, Any]) -> Table:
    listing = Table(result["family"], "median")
    for name, label in {
        "lifetime_steps_per_s": "steps/s of lifetimes, one core",
        "raw_steps_per_s": "steps/s of the same physics alone",
        "stock_steps_per_s": "steps/s of stock Gymnasium physics alone",
    }.items():
        if result[name] is not None:
            listing.add_row(label, f"{result[name]:,.0f}")
    for name, label in {
        "time_over_raw": "time of lifetimes / of physics alone",
        "rate_over_stock": "rate of lifetimes / of stock physics",
        "two_process_speedup": "speed of two processes / of one",
    }.items():
        if result[name] is not None:
            listing.add_row(label, f"{result[name]:.2f}")
    for name, value in result["microseconds_per_step"].items():
        listing.add_row(f"microseconds a step: {name}", f"{value:.1f}")
    return listing
