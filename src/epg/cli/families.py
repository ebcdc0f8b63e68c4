"""`epg tasks` and `epg check`: families."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.table import Column, Table
from tyro.conf import Positional

from epg import api
from epg.cli.arguments import Family, Verb
from epg.cli.output import print_json, print_table, say
from epg.cli.progress import status_line
from epg.core.errors import require


@dataclass(frozen=True, kw_only=True)
class Tasks(Verb):
    """List the families, or show one family's specification."""

    family: Positional[Family | None] = None
    """Name of a family or module:attribute; without it all are listed."""
    picture: Path | None = None
    """Draw some tasks of the family into this PNG (MuJoCo families)."""

    def main(self) -> None:
        """List, show or draw."""
        if self.picture is not None:
            require(self.family is not None, "--picture needs a family: epg tasks FAMILY --picture FILE.png.")
            with status_line(f"drawing {self.family}"):
                say(api.picture(str(self.family), self.picture))
            return
        families = api.families(self.family)
        if self.json:
            print_json([{"name": it.name, "version": it.version, "horizon": it.horizon} for it in families])
        elif self.family:
            say(families[0].specification.rstrip() or families[0].summary)
        else:
            listing = Table(Column("family", no_wrap=True), "observation", "action", "horizon", "task")
            for it in families:
                kind = f"{it.spaces.action} choices" if it.spaces.discrete else str(it.spaces.action)
                listing.add_row(it.name, str(it.spaces.observation), kind, str(it.horizon), it.summary)
            print_table(listing)


@dataclass(frozen=True, kw_only=True)
class Check(Verb):
    """Check a family against the contract, registered or your own."""

    family: Positional[Family]
    """Name of a family or module:attribute."""

    def main(self) -> None:
        """Run every check; exit with 1 if the family fails one."""
        with status_line(f"checking {self.family}"):
            checks = api.check(self.family)
        if self.json:
            print_json([{"name": it.name, "passed": it.passed, "problem": it.problem} for it in checks])
        else:
            for it in checks:
                problem = f": {it.problem}" if it.problem else ""
                say(f"{'ok  ' if it.passed else 'FAIL'} {it.name}{problem}", style=None if it.passed else "red")
        if not all(it.passed for it in checks):
            sys.exit(1)
