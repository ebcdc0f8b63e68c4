"""What a verb ends with: a table for people, one line of JSON for scripts, an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from epg.parts.files import plain
from epg.people.table import show_table

STOPPED = 130  # exit code after Ctrl-C


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def show(result: dict[str, Any], as_json: bool) -> None:
    show_table(result, Path(result["run"]) / "report.html")
    if as_json:
        print_json(result)
