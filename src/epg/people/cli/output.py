"""What a verb prints at its end: a table for people, one line of JSON for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from epg.parts.files import plain
from epg.people.table import show_table


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def show(result: dict[str, Any], as_json: bool) -> None:
    show_table(result, Path(result["run"]) / "report.html")
    if as_json:
        print_json(result)
